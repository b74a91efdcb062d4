"""Scorecard driver of confluent-kafka, with default settings.

A refresh, a caller and the call with a timeout are `Producer.list_topics(topic)` of a topic that
the client hasn't requested before, the library's only call for the partitions of a topic; it always
sends a request. In mode `call` its timeout is `--timeout`, otherwise 60 s.
"""

import importlib.metadata

import confluent_kafka
import driver


def main():
    options = driver.options()
    version = importlib.metadata.version("confluent-kafka")
    driver.say("ready", library="confluent-kafka", version=version)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "error_cb": lambda problem: driver.error(problem.str()),
            "log_level": 0,
        }
    )
    topic = options.topic

    def delivered(problem, message):
        if problem is not None:
            driver.error(str(problem))
        else:
            driver.say("acked", n=int(message.value()))

    if options.mode in ("produce", "idle"):
        driver.leave_at_eof(options.seconds)
        for n in driver.pace():
            producer.produce(topic, value=b"%d" % n, partition=0, on_delivery=delivered)
            producer.poll(0)
    for partition in range(options.partitions):
        producer.produce(topic, value=b"%d" % partition, partition=partition, on_delivery=delivered)
    if producer.flush(30):
        raise SystemExit("the client could not be established")
    driver.wait_for_go(options.seconds)
    if options.mode == "metadata":
        driver.refresh(options.refreshes, lambda i: listed(producer, f"{topic}-{i}", 60))
    elif options.mode == "callers":
        n, seconds = driver.at_once(options.callers, lambda i: listed(producer, f"{topic}-{i}", 60))
        driver.say("done", n=n, seconds=seconds)
        driver.stay()
    else:
        driver.timed(lambda: listed(producer, f"{topic}-0", options.timeout))


def listed(producer, topic, timeout):
    found = producer.list_topics(topic, timeout).topics[topic]
    if found.error is not None:
        raise confluent_kafka.KafkaException(found.error)
    return found.partitions


if __name__ == "__main__":
    main()
