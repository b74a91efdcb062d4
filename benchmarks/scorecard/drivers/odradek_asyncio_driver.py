"""Scorecard driver of Odradek's asyncio clients: `AsyncProducer` in an event loop, no thread.

The settings are the defaults; mode `call` passes a timeout to the call. A refresh, a caller and the
call with a timeout are the same as in Odradek's other driver, awaited. Callers are tasks of one
loop.
"""

import asyncio
import time
from functools import partial

import driver

import odradek


async def main():
    options = driver.options()
    driver.say("ready", library="odradek", version=odradek.__version__)
    producer = odradek.AsyncProducer({"bootstrap.servers": options.bootstrap})
    topic = options.topic
    if options.mode in ("produce", "idle"):
        driver.leave_at_eof(options.seconds)
        await produce(producer, topic)
    for partition in range(options.partitions):
        await producer.send_and_wait(topic, value=b"0", partition=partition)
        driver.say("acked", n=partition)
    await asyncio.to_thread(driver.wait_for_go, options.seconds)
    if options.mode == "metadata":
        good = 0
        for i in range(options.refreshes):
            good += await asked(producer, f"{topic}-{i}")
        driver.say("done", n=good)
    elif options.mode == "callers":
        begin = time.monotonic()
        calls = (asked(producer, f"{topic}-{i}") for i in range(options.callers))
        good = sum(await asyncio.gather(*calls))
        driver.say("done", n=good, seconds=time.monotonic() - begin)
    else:
        await bounded(producer, f"{topic}-0", options.timeout)
    await asyncio.Event().wait()


async def asked(producer, topic):
    """Return whether the client found the partitions of a topic."""
    try:
        await producer.partitions_for(topic)
    except odradek.KafkaError as problem:
        driver.error(problem)
        return False
    return True


async def bounded(producer, topic, timeout):
    """Make the single call of mode `call`; report its duration and its result or error."""
    begin = time.monotonic()
    try:
        await producer.partitions_for(topic, timeout=timeout)
        what = "ok"
    except odradek.KafkaError as problem:
        what = f"{type(problem).__name__}: {problem}"
    driver.say("returned", seconds=time.monotonic() - begin, what=what)
    driver.leave()


async def produce(producer, topic):
    """Send a record every 100 ms."""

    def done(n, delivery):
        problem = delivery.exception()
        if problem is not None:
            driver.error(problem)
        else:
            driver.say("acked", n=n)

    n = 0
    while True:
        begin = time.monotonic()
        try:
            delivery = await producer.send(topic, value=b"%d" % n, partition=0)
        except odradek.KafkaError as problem:
            driver.error(problem)
        else:
            delivery.add_done_callback(partial(done, n))
        n += 1
        await asyncio.sleep(max(0.0, driver.PACE - (time.monotonic() - begin)))


if __name__ == "__main__":
    asyncio.run(main())
