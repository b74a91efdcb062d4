"""Scorecard driver of Odradek, with default settings; mode `call` passes a timeout to the call.

A refresh, a caller and the call with a timeout are `Producer.partitions_for` of a topic that the
client hasn't requested before, which needs metadata.
"""

from functools import partial

import driver

import odradek


def main():
    options = driver.options()
    driver.say("ready", library="odradek", version=odradek.__version__)
    producer = odradek.Producer({"bootstrap.servers": options.bootstrap})
    topic = options.topic
    if options.mode in ("produce", "idle"):
        driver.leave_at_eof(options.seconds)
        produce(producer, topic)
    for partition in range(options.partitions):
        producer.send(topic, value=b"0", partition=partition).result(timeout=30)
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
        driver.timed(lambda: producer.partitions_for(f"{topic}-0", timeout=options.timeout))


def produce(producer, topic):
    """Send a record every 100 ms."""

    def done(n, future):
        problem = future.exception(timeout=0)
        if problem is not None:
            driver.error(problem)
        else:
            driver.say("acked", n=n)

    for n in driver.pace():
        try:
            future = producer.send(topic, value=b"%d" % n, partition=0)
        except odradek.KafkaError as problem:
            driver.error(problem)
        else:
            future.add_done_callback(partial(done, n))


if __name__ == "__main__":
    main()
