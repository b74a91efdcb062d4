"""Encode metrics as OpenTelemetry's `MetricsData`, in protobuf (opentelemetry-proto 1.x).

In: numbers by name, tags and kind. Out: bytes. Counters are sums, with the temporality that the
broker requests; all others are gauges. The encoder is written by hand, as a client needs no
protobuf library for six messages. Must not: know which metrics are requested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.clients.metrics.metric import Kind

DELTA, CUMULATIVE = 1, 2
_LENGTH = 2
"""Wire type of fields with a length: texts and messages."""
_FIXED64, _VARINT = 1, 0
SCOPE = "odradek"


class Point(NamedTuple):
    """One value of one metric."""

    name: str
    """Name in KIP-714's form: `org.apache.kafka.producer.record.send.total`."""
    tags: Mapping[str, str]
    value: float
    kind: Kind
    since: float
    """Time at which counting of a sum began, in seconds since the epoch."""


def metrics_data(
    points: Iterable[Point], resource: Mapping[str, str], at: float, temporality: int
) -> bytes:
    """Return the message `MetricsData` with one resource and one scope."""
    metrics = b"".join(_field(2, _metric(point, at, temporality)) for point in points)
    scope = _field(1, _field(1, SCOPE.encode())) + metrics
    attributes = b"".join(_field(1, _attribute(*pair)) for pair in resource.items())
    return _field(1, _field(1, attributes) + _field(2, scope))


def _metric(point: Point, at: float, temporality: int) -> bytes:
    data = b"".join(_field(7, _attribute(*pair)) for pair in point.tags.items())
    data += _fixed(2, point.since) + _fixed(3, at)
    if point.kind == "counter":
        data += _tag(6, _FIXED64) + struct.pack("<q", round(point.value))
        sums = _field(1, data) + _tag(2, _VARINT) + _varint(temporality) + _tag(3, _VARINT) + b"\1"
        return _field(1, point.name.encode()) + _field(7, sums)
    data += _tag(4, _FIXED64) + struct.pack("<d", point.value)
    return _field(1, point.name.encode()) + _field(5, _field(1, data))


def _attribute(key: str, value: str) -> bytes:
    return _field(1, key.encode()) + _field(2, _field(1, value.encode()))


def _fixed(number: int, seconds: float) -> bytes:
    """Encode a time as a field in nanoseconds."""
    return _tag(number, _FIXED64) + struct.pack("<Q", max(0, round(seconds * 1e9)))


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, _LENGTH) + _varint(len(content)) + content


def _tag(number: int, wire_type: int) -> bytes:
    return bytes((number << 3 | wire_type,))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
