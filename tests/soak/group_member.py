"""One member of a group as a program of its own, so that a soak can stop it with SIGSTOP.

In: its settings as JSON on the command line. Out: what it was handed and what became of each
commit, one JSON document a line on stdout. It ends in order when its stdin is closed.
Must not: judge.
"""

from __future__ import annotations

import asyncio
import json
import logging
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.consumer import Consumer
from odradek.api.workers import Workers
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition

AT_ONCE = 20
"""Records of one poll, all of which are in the program's hands while it works."""
WORK = 0.02
"""Seconds of work for each record."""
POLL = 0.3
STOPPED = 2.0
"""Seconds of work after which the process was probably stopped."""
BUSY = 4.0
"""Seconds that a program is still busy then with what it holds: its client rejoins meanwhile."""


def tell(kind: str, **what: Any) -> None:
    """Write one line for the soak."""
    sys.stdout.write(json.dumps({"kind": kind, "at": time.monotonic(), **what}) + "\n")
    sys.stdout.flush()


def got(records: Iterable[ConsumerRecord]) -> None:
    """Report records that were handed to the program."""
    rows = [[r.partition, r.offset, bytes(r.value or b"").decode()] for r in records]
    tell("got", rows=rows)


def stopped() -> bool:
    """Return whether the soak has closed stdin."""
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


def busy(since: float) -> float:
    """Return how long to stay busy, if the process was stopped since that time."""
    return BUSY if time.monotonic() - since > STOPPED else 0.0


def attempt(commit: Callable[[], object], offsets: dict[int, int]) -> None:
    """Commit, and report the outcome."""
    tell("commit", offsets=offsets)
    try:
        commit()
    except KafkaError as error:
        tell("refused", offsets=offsets, error=f"{type(error).__name__}: {error}")
    else:
        tell("committed", offsets=offsets)


def ends(records: Iterable[ConsumerRecord]) -> dict[int, int]:
    """Return the offset after the last record of each partition."""
    found: dict[int, int] = {}
    for record in records:
        found[record.partition] = max(found.get(record.partition, 0), record.offset + 1)
    return found


def read(consumer: Consumer, topic: str, style: str) -> None:
    """Poll, work, and commit as `style` says, until the soak ends."""

    def done(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        told = {p.partition: o.offset for p, o in offsets.items()}
        if error is None:
            tell("committed", offsets=told)
        else:
            tell("refused", offsets=told, error=f"{type(error).__name__}: {error}")

    consumer.subscribe([topic])
    while not stopped():
        try:
            records = consumer.poll(POLL, AT_ONCE)
        except KafkaError as error:
            tell("error", error=f"{type(error).__name__}: {error}")
            time.sleep(POLL)
            continue
        got(records)
        for record in records:
            since = time.monotonic()
            time.sleep(WORK)
            time.sleep(busy(since))
            if style == "record":
                attempt(partial(consumer.commit, record), ends([record]))
        if style == "all" and records:
            attempt(consumer.commit, ends(records))
        elif style == "later" and records:
            offsets = {TopicPartition(topic, p): o for p, o in ends(records).items()}
            try:
                consumer.commit_async(offsets, done)
            except KafkaError as error:
                done({p: OffsetAndMetadata(o) for p, o in offsets.items()}, error)


async def read_in_loop(config: dict[str, Any], topic: str) -> None:
    """Do the same as a task of an event loop."""
    async with AsyncConsumer(config) as consumer:
        await consumer.subscribe([topic])
        while not stopped():
            try:
                records = await consumer.poll(POLL, AT_ONCE)
            except KafkaError as error:
                tell("error", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(POLL)
                continue
            got(records)
            for record in records:
                since = time.monotonic()
                await asyncio.sleep(WORK)
                await asyncio.sleep(busy(since))
                offsets = ends([record])
                tell("commit", offsets=offsets)
                try:
                    await consumer.commit(record)
                except KafkaError as error:
                    tell("refused", offsets=offsets, error=f"{type(error).__name__}: {error}")
                else:
                    tell("committed", offsets=offsets)


def work(consumer: Consumer, topic: str) -> None:
    """Let `Workers` read and commit."""

    def one(record: ConsumerRecord) -> None:
        got([record])
        since = time.monotonic()
        time.sleep(WORK)
        time.sleep(busy(since))

    def wait_for_end() -> None:
        sys.stdin.read()
        workers.stop()

    workers = Workers(consumer, one, commit_interval=0.2)
    threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        workers.run(topic)
    except KafkaError as error:
        tell("error", error=f"{type(error).__name__}: {error}")


def main() -> None:
    """Run as the command line says."""
    told = json.loads(sys.argv[1])
    config, topic, style = told["config"], told["topic"], told["style"]
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    tell("began", style=style)
    if style == "asyncio":
        asyncio.run(read_in_loop(config, topic))
    else:
        with Consumer(config) as consumer:
            if style == "workers":
                work(consumer, topic)
            else:
                read(consumer, topic, style)
    tell("ended")


if __name__ == "__main__":
    main()
