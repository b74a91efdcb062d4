"""Measure upper limits with a bare socket that fetches and discards, or sends prepared requests.

In: the broker's address. Out: the maximum rate of the broker and the loopback over one connection.
No record is decoded while the clock runs: an earlier pass has determined the fetches to send, and
the batches to produce are prepared. Requests are encoded by hand, in the oldest versions that Kafka
4 accepts, so that no client's code is measured.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import struct
from collections import deque
from itertools import chain, cycle, islice, zip_longest

from driver import TIMEOUT, Found, Watch, main, pool

from odradek.record import BatchBuilder

FETCH, FETCH_VERSION = 1, 4
PRODUCE, PRODUCE_VERSION = 0, 7
FETCH_BYTES = 8 << 20
FETCHES_AHEAD = 2
PRODUCES_AHEAD = 5
BATCH_BYTES = 256 << 10


class Wire:
    """One blocking connection to a broker, with TLS if an authority is given."""

    def __init__(self, options: argparse.Namespace) -> None:
        host, _, port = options.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.ca:
            context = ssl.create_default_context(cafile=options.ca)
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._buffer = bytearray(FETCH_BYTES + (1 << 20))

    def send(self, *parts: bytes | memoryview) -> None:
        """Write one request, preceded by its size."""
        self._socket.sendall(struct.pack(">i", sum(len(part) for part in parts)))
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> memoryview:
        """Return the next response, in a buffer that the next call overwrites."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(self._buffer)[:size]
        got = 0
        while got < size:
            n = self._socket.recv_into(view[got:])
            if not n:
                raise RuntimeError("the broker closed the connection")
            got += n
        return view


def text(value: str) -> bytes:
    """Encode a string as the protocol does."""
    return struct.pack(">h", len(value)) + value.encode()


def header(key: int, version: int) -> bytes:
    """Encode request header 1; responses come in order, so the correlation id isn't needed."""
    return struct.pack(">hhi", key, version, 0) + text("raw")


def fetch(topic: str, partition: int, offset: int) -> bytes:
    """Encode a Fetch request for one partition."""
    settings = struct.pack(">iiiib", -1, 500, 1, FETCH_BYTES, 0)
    where = struct.pack(">iiqi", 1, partition, offset, FETCH_BYTES)
    return header(FETCH, FETCH_VERSION) + settings + struct.pack(">i", 1) + text(topic) + where


def records_of(answer: memoryview, topic: str) -> memoryview:
    """Return the record batches in a response to `fetch`."""
    at = (
        4 + 4 + 4 + 2 + len(topic) + 4
    )  # correlation id, throttle time, one topic, its name, one partition
    _, error, *_ = struct.unpack_from(">ihqqi", answer, at)
    if error:
        raise RuntimeError(f"the broker answered with error {error}")
    at += struct.calcsize(">ihqqi")
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def whole(records: memoryview) -> tuple[int, int]:
    """Return the offset after the last complete batch, and the size of all complete batches."""
    at, offset = 0, -1
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        (last,) = struct.unpack_from(">i", records, at + 23)
        offset = base + last + 1
        at += 12 + length
    return offset, at


def receive(options: argparse.Namespace) -> Found:
    """Fetch everything once to get the offsets, then again with the clock, two requests ahead."""
    wire = Wire(options)
    plans = []
    for partition in range(options.partitions):
        plan = []
        offset = 0
        while offset < options.records // options.partitions:
            request = fetch(options.topic, partition, offset)
            wire.send(request)
            behind, size = whole(records_of(wire.receive(), options.topic))
            plan.append((request, behind - offset, size))
            offset = behind
        plans.append(plan)
    in_turn = (step for turn in zip_longest(*plans) for step in turn if step is not None)
    requests = list(in_turn)
    records = size = 0
    ahead: deque[tuple[bytes, int, int]] = deque()
    watch = Watch()
    wire = Wire(options)
    for step in chain(requests, [None] * FETCHES_AHEAD):
        if step is not None:
            wire.send(step[0])
            ahead.append(step)
        if ahead and (step is None or len(ahead) >= FETCHES_AHEAD):
            wire.receive()
            watch.seen()
            _, n, length = ahead.popleft()
            records += n
            size += length
    return watch.stop("bytes, thrown away", records, size)


def ingest(options: argparse.Namespace) -> Found:
    """Send the same few batches repeatedly, one for each partition in a request."""
    keys, values = pool(options.pool)
    rows = cycle(zip(keys, values, strict=True))
    batches = []
    count = size = 0
    for _ in range(options.partitions):
        limit = options.batch_size or BATCH_BYTES
        builder = BatchBuilder(limit, None if options.codec == "none" else options.codec)
        while True:
            key, value = next(rows)
            if builder.append(key, value, (), 1_700_000_000_000) is None:
                break
            size += len(key) + len(value)
        count += builder.count
        batches.append(bytes(builder.build()))
    head = [header(PRODUCE, PRODUCE_VERSION), struct.pack(">hhi", -1, -1, 30_000)]
    head += [struct.pack(">i", 1), text(options.topic), struct.pack(">i", len(batches))]
    parts = [b"".join(head)]
    for partition, batch in enumerate(batches):
        parts += [struct.pack(">ii", partition, len(batch)), batch]
    request = b"".join(parts)
    times = max(1, options.records // count)
    waiting = 0
    watch = Watch()
    wire = Wire(options)
    for n in islice(chain(range(times), [None] * PRODUCES_AHEAD), times + PRODUCES_AHEAD):
        if n is not None:
            wire.send(request)
            waiting += 1
        if waiting and (n is None or waiting >= PRODUCES_AHEAD):
            check_produced(wire.receive(), options.topic, len(batches))
            watch.seen()
            waiting -= 1
    return watch.stop("acknowledgements", times * count, times * size)


def check_produced(answer: memoryview, topic: str, partitions: int) -> None:
    """Check that every partition of a Produce 7 response has no error."""
    at = 4 + 4 + 2 + len(topic) + 4
    for _ in range(partitions):
        _, error, *_ = struct.unpack_from(">ihqqq", answer, at)
        if error:
            raise RuntimeError(f"the broker answered with error {error}")
        at += struct.calcsize(">ihqqq")


if __name__ == "__main__":
    main("raw socket", "", {"receive": receive, "ingest": ingest})
