"""Threads that do what nobody should to an encoder at work: change its columns, use its batches.

The encoder works without the GIL, so both happen in the midst of a row. Whatever comes of it, no
byte beyond a buffer may be read or written (a sanitizer watches), and what is built is sound.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.fuzz.sent import HOSTILE, headers, integers, numbers, packed

from odradek.common.errors import IllegalStateError, KafkaError
from odradek.record import reference
from odradek.record.sent_columns import SentBinary, SentColumns, StopReason

ROWS = 12_000
PARTITIONS = 3


def columns(rng: random.Random) -> SentColumns:
    """Sound ones, with a header or two in each row."""
    ends = [0]
    for _ in range(ROWS):
        ends.append(ends[-1] + rng.randrange(40))
    return SentColumns(
        ROWS,
        SentBinary(integers(ends, False), memoryview(bytearray(rng.randbytes(ends[-1])))),
        None,
        headers(rng, ROWS),
        numbers(rng, [rng.randrange(PARTITIONS) for _ in range(ROWS)], False),
    )


def spoil(
    rng: random.Random, sent: SentColumns, ready: threading.Event, over: threading.Event
) -> None:
    """Write lies over numbers of the columns, and the truth again."""
    assert sent.values is not None
    assert sent.headers is not None
    assert sent.partitions is not None
    lists = sent.headers
    places: list[tuple[Any, bool]] = [
        (sent.values.offsets, False),
        (lists.offsets, lists.wide),
        (lists.keys.offsets, lists.keys.wide),
        (lists.keys.offsets, lists.keys.wide),
        (lists.values.offsets, lists.values.wide),
        (sent.partitions.data, False),
    ]
    truth = [bytes(view) for view, _ in places]
    ready.set()
    while not over.is_set():
        which = rng.randrange(len(places))
        view, wide = places[which]
        width = 8 if wide else 4
        changed = []
        for _ in range(8):
            at = rng.randrange(len(view) // width) * width
            lie = rng.choice(HOSTILE) if rng.random() < 0.5 else rng.randrange(60_000)
            view[at : at + width] = packed(lie, wide)
            changed.append(at)
        for at in changed:
            view[at : at + width] = truth[which][at : at + width]
    for (view, _), told in zip(places, truth, strict=True):
        view[:] = told


def meddle(
    rng: random.Random,
    kernel: Any,
    encoder: Any,
    batches: list[Any],
    ready: threading.Event,
    over: threading.Event,
) -> None:
    """Use the encoder and its batches from another thread."""
    other = b"x" * 300
    ready.set()
    while not over.is_set():
        batch = rng.choice(batches)
        calls: list[Callable[[], Any]] = [
            lambda batch=batch: batch.append(other, other, (), 5),  # type: ignore[misc]
            lambda batch=batch: batch.append(None, b"", (), 5),  # type: ignore[misc]
            lambda: encoder.use(0, kernel.BatchBuilder(1000, None)),
            lambda: encoder.encode(0, 10, timestamp_ms=5, room=1000),
            encoder.pieces,
        ]
        if rng.random() < 0.05:
            calls = [batch.build, batch.release]
        try:
            rng.choice(calls)()
        except (IllegalStateError, KafkaError):
            continue


def race(kernel: Any, seed: int, seconds: float) -> int:
    """Race for some seconds; gives how many rows made it."""
    rng = random.Random(seed)
    until = time.monotonic() + seconds
    rows = 0
    while time.monotonic() < until:
        sent = columns(rng)
        try:
            encoder = kernel.ColumnEncoder(sent, PARTITIONS, 1 << 20)
        except KafkaError:  # now and then a name that isn't UTF-8
            continue
        batches = [kernel.BatchBuilder(1 << 20, None) for _ in range(PARTITIONS)]
        for place, batch in enumerate(batches):
            encoder.use(place, batch)
        ready, over = threading.Event(), threading.Event()
        seeds = random.Random(rng.random())
        work = (spoil, (seeds, sent, ready, over))
        if rng.random() < 0.5:
            work = (meddle, (seeds, kernel, encoder, batches, ready, over))  # type: ignore[assignment]
        thread = threading.Thread(target=work[0], args=work[1], daemon=True)
        thread.start()
        ready.wait(10)
        try:
            rows += once(kernel, encoder, batches)
        finally:
            over.set()
            thread.join()
    return rows


def once(kernel: Any, encoder: Any, batches: list[Any]) -> int:
    """Encode it all, perhaps over and over; then look at the batches."""
    row = turns = 0
    while row < ROWS and turns < 300:
        turns += 1
        try:
            found = encoder.encode(row, ROWS, timestamp_ms=5, room=1 << 40, sticky=0)
        except (IllegalStateError, KafkaError):
            row += 1
            continue
        row = found.row
        if found.reason == StopReason.BATCH:
            batches[found.partition] = kernel.BatchBuilder(1 << 20, None)
            try:
                encoder.use(found.partition, batches[found.partition])
            except IllegalStateError:
                continue
        elif found.reason == StopReason.STICKY:
            row += 1
    for batch in batches:
        try:
            built = batch.build()
        except IllegalStateError:
            continue
        reference.decode(built, start_offset=0)
    return row
