"""Scorecard driver of kafka-python, with default settings except `max_block_ms` in mode `call`.

A refresh, a caller and the call with a timeout are `KafkaProducer.partitions_for` of a topic that
the client hasn't requested before. The call has no timeout argument; it is limited by
`max_block_ms`, which mode `call` sets to `--timeout`.
"""

import logging

import driver
import kafka


def main():
    options = driver.options()
    logging.disable(logging.CRITICAL)
    driver.say("ready", library="kafka-python", version=kafka.__version__)
    bounded = {}
    if options.mode == "call":
        bounded["max_block_ms"] = int(options.timeout * 1000)
    producer = kafka.KafkaProducer(bootstrap_servers=options.bootstrap.split(","), **bounded)
    topic = options.topic
    if options.mode in ("produce", "idle"):
        driver.leave_at_eof(options.seconds)
        for n in driver.pace():
            try:
                future = producer.send(topic, b"%d" % n, partition=0)
            except Exception as problem:
                driver.error(problem)
                continue
            future.add_callback(lambda _, n=n: driver.say("acked", n=n))
            future.add_errback(driver.error)
    for partition in range(options.partitions):
        producer.send(topic, b"0", partition=partition).get(timeout=30)
        driver.say("acked", n=partition)
    driver.wait_for_go(options.seconds)
    if options.mode == "metadata":
        driver.refresh(options.refreshes, lambda i: producer.partitions_for(f"{topic}-{i}"))
    elif options.mode == "callers":
        n, seconds = driver.at_once(
            options.callers, lambda i: producer.partitions_for(f"{topic}-{i}")
        )
        driver.say("done", n=n, seconds=seconds)
        driver.stay()
    else:
        driver.timed(lambda: producer.partitions_for(f"{topic}-0"))


if __name__ == "__main__":
    main()
