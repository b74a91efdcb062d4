"""Scorecard driver of aiokafka, with default settings except `request_timeout_ms` in mode `call`.

A refresh, a caller and the call with a timeout are `AIOKafkaProducer.partitions_for` of a topic
that the client hasn't requested before. Callers are tasks of one loop. The call has no timeout
argument; it is limited by `request_timeout_ms`, which mode `call` sets to `--timeout`.
"""

import asyncio
import logging
import time

import aiokafka
import driver


async def main():
    options = driver.options()
    logging.disable(logging.CRITICAL)
    driver.say("ready", library="aiokafka", version=aiokafka.__version__)
    bounded = {}
    if options.mode == "call":
        bounded["request_timeout_ms"] = int(options.timeout * 1000)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=options.bootstrap, **bounded)
    await producer.start()
    topic = options.topic
    if options.mode in ("produce", "idle"):
        driver.leave_at_eof(options.seconds)
        await produce(producer, topic)
    for partition in range(options.partitions):
        await producer.send_and_wait(topic, b"0", partition=partition)
        driver.say("acked", n=partition)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, driver.wait_for_go, options.seconds)
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
        begin = time.monotonic()
        try:
            await producer.partitions_for(f"{topic}-0")
            what = "ok"
        except Exception as problem:
            what = f"{type(problem).__name__}: {problem}"
        driver.say("returned", seconds=time.monotonic() - begin, what=what)
        driver.leave()
    await asyncio.Event().wait()


async def asked(producer, topic):
    try:
        await producer.partitions_for(topic)
    except Exception as problem:
        driver.error(problem)
        return False
    return True


async def produce(producer, topic):
    """Send a record every 100 ms."""

    def done(n, future):
        if future.cancelled():
            return
        if future.exception() is not None:
            driver.error(future.exception())
        else:
            driver.say("acked", n=n)

    n = 0
    while True:
        begin = time.monotonic()
        try:
            future = await producer.send(topic, b"%d" % n, partition=0)
            future.add_done_callback(lambda f, n=n: done(n, f))
        except Exception as problem:
            driver.error(problem)
        n += 1
        await asyncio.sleep(max(0.0, driver.PACE - (time.monotonic() - begin)))


if __name__ == "__main__":
    asyncio.run(main())
