;; Judge histories with Jepsen's Kafka analysis, jepsen.tests.kafka.
;;
;;     java -cp CLASS_PATH clojure.main tools/jepsen_check.clj HISTORY.edn ...
;;
;; A history has one operation on each line, as history_edn writes it. Prints one JSON object for
;; each history: the file, the number of errors by type, and of those that Jepsen allows in Kafka.
;; Exits with 1 if a history has errors that aren't allowed, or if the analysis fails.
(ns jepsen-check
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [clojure.string :as str]
            [jepsen.history :as h]
            [jepsen.tests.kafka :as kafka]))

(def options
  "Consumers are assigned partitions by key, so that polls must neither skip nor go back. Without
  write-write edges, each cycle of reads is an error; Kafka doesn't isolate writers."
  {:sub-via #{:assign}, :ww-deps false})

(defn read-history
  "Return the history of a file."
  [file]
  (with-open [lines (io/reader file)]
    (h/history (into []
                     (comp (remove #(or (str/blank? %) (str/starts-with? % ";")))
                           (map #(dissoc (edn/read-string %) :index)))
                     (line-seq lines)))))

(defn size
  "Return the number of errors of one type."
  [[kind errors]]
  (cond (= :unseen kind) (reduce + (vals (:unseen errors)))
        (map? errors)    1
        (coll? errors)   (count errors)
        :else            1))

(defn counts
  "Return the number of errors by type."
  [errors]
  (into (sorted-map) (map (juxt (comp name key) size)) errors))

(defn judge
  "Return the number of errors by type; those of the order of writers are allowed ones."
  [history]
  (let [errors   (dissoc (:errors (kafka/analysis history options)) :empty-transaction-graph)
        writers  (:errors (kafka/analysis history (assoc options :ww-deps true)))
        allowed? (comp (kafka/allowed-error-types options) key)]
    {:errors  (counts (remove allowed? errors))
     :allowed (counts (merge (select-keys writers [:G0 :G0-process :G0-realtime])
                             (into {} (filter allowed?) errors)))}))

(defn json
  "Return a map of strings, numbers and such maps as JSON."
  [value]
  (cond (map? value)    (str "{" (str/join ", " (for [[k v] value] (str (json k) ": " (json v)))) "}")
        (number? value) (str value)
        :else           (pr-str (if (keyword? value) (name value) (str value)))))

(let [bad (volatile! false)]
  (doseq [file *command-line-args*]
    (let [found (try (judge (read-history file))
                     (catch Throwable failure
                       (let [cause (first (drop-while #(nil? (ex-data %))
                                                      (take-while some? (iterate ex-cause failure))))]
                         {:errors {(str "exception " (or (:type (ex-data cause)) failure)) 1}
                          :allowed {}})))]
      (when (seq (:errors found)) (vreset! bad true))
      (println (json (assoc found :file file)))
      (flush)))
  (shutdown-agents)
  (System/exit (if @bad 1 0)))
