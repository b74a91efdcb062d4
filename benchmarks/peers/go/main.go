// Driver of the benchmarks for the Go clients: one process, one measurement, one JSON line.
//
// In: `driver LIBRARY MODE --bootstrap … --topic …` and a pool of records (see pool.go). Out: one
// line on standard output: records, bytes, seconds, CPU seconds, memory, version. The clock starts
// before the client is created. Must not: keep records longer than the clients do.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options of the command line.
type task struct {
	mode       string
	bootstrap  []string
	topic      string
	partitions int
	records    int64
	pool       string
	codec      string
	batchSize  int
	rate       float64
	ca         string
	clients    int
	pattern    string
	idle       float64
	settle     float64
	pauses     string
}

// Results of a mode.
type found map[string]any

var libraries = map[string]struct {
	module string
	modes  map[string]func(task) (found, error)
}{
	"franz-go": {"github.com/twmb/franz-go", map[string]func(task) (found, error){
		"load": franzProduce, "produce": franzProduce, "consume": franzConsume, "arrow": franzArrow,
		"round-trip": franzRoundTrip, "start": franzStart, "idle": franzIdle,
		"seek": franzSeek,
	}},
	"sarama": {"github.com/IBM/sarama", map[string]func(task) (found, error){
		"produce": saramaProduce, "consume": saramaConsume, "round-trip": saramaRoundTrip, "start": saramaStart,
	}},
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: driver franz-go|sarama MODE --bootstrap HOST:PORT --topic T …"))
	}
	library, known := libraries[os.Args[1]]
	if !known {
		fail(fmt.Errorf("unknown library %s", os.Args[1]))
	}
	run, known := library.modes[os.Args[2]]
	if !known {
		fail(fmt.Errorf("%s has no mode %s", os.Args[1], os.Args[2]))
	}
	result, err := run(parse(os.Args[2], os.Args[3:]))
	if err != nil {
		fail(err)
	}
	result["library"], result["mode"], result["version"] = os.Args[1], os.Args[2], version(library.module)
	result["peak_rss"] = status("VmHWM")
	line, _ := json.Marshal(result)
	fmt.Println(string(line))
}

func parse(mode string, arguments []string) task {
	flags := flag.NewFlagSet("driver", flag.ExitOnError)
	bootstrap := flags.String("bootstrap", "", "addresses, separated by commas")
	topic := flags.String("topic", "", "topic")
	partitions := flags.Int("partitions", 4, "partitions of the topic")
	records := flags.Int64("records", 1000, "how many")
	pool := flags.String("pool", "", "file with the records to produce")
	codec := flags.String("codec", "none", "compression")
	batchSize := flags.Int("batch-size", 128<<10, "largest batch in bytes, before compression")
	rate := flags.Float64("rate", 100, "mode round-trip: records a second")
	ca := flags.String("ca", "", "TLS, with a broker that this authority (PEM) signed; franz-go only")
	clients := flags.Int("clients", 1, "mode idle: how many; franz-go only")
	pattern := flags.String("pattern", "", "mode idle: subscribe, instead of an assignment")
	settle := flags.Float64("settle", 0.7, "mode idle: seconds before these")
	idle := flags.Float64("idle", 2, "mode idle: seconds")
	pauses := flags.String("pauses", "130", "mode seek: milliseconds, separated by commas")
	_ = flags.Parse(arguments) // exits by itself when it can't
	return task{
		mode, strings.Split(*bootstrap, ","), *topic, *partitions, *records, *pool, *codec, *batchSize, *rate, *ca,
		*clients, *pattern, *idle, *settle, *pauses,
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// version returns the version of a module with which this program was linked.
func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}

// status returns a line of /proc/self/status in bytes: VmHWM is the peak, VmRSS the current value.
func status(name string) int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name+":" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes * 1024
		}
	}
	return 0
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// A watch of wall and CPU time, and of the first record's time.
type watch struct {
	begin time.Time
	cpu   float64
	rss   int64
	first float64
}

func start() *watch {
	return &watch{begin: time.Now(), cpu: cpuSeconds(), rss: status("VmRSS")}
}

// seen notes the first record.
func (w *watch) seen() {
	if w.first == 0 {
		w.first = time.Since(w.begin).Seconds()
	}
}

func (w *watch) stop(delivers string, records, bytes int64) found {
	return found{
		"delivers": delivers, "records": records, "bytes": bytes, "first": w.first, "rss_before": w.rss,
		"seconds": time.Since(w.begin).Seconds(), "cpu": cpuSeconds() - w.cpu,
	}
}

// latencies computes the reported figures of measured times, without the first tenth.
func latencies(times []time.Duration) found {
	times = times[len(times)/10:]
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	return found{"p50_ms": at(0.5), "p99_ms": at(0.99), "records": len(times)}
}

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}
