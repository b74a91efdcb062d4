"""Values and keys that are buffers of other objects are sent without conversion."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.simulation import SimulatedCluster, World

BUFFERS = [
    np.arange(3),
    np.array([1]),
    np.array([], dtype="i8"),
    array("d", [1.5, 2.5]),
    pa.py_buffer(b"arrow"),
    bytearray(b"b"),
    memoryview(array("i", [7, 8])),
]


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda b: f"{type(b).__name__}-{len(b)}")
@pytest.mark.parametrize("place", ["value", "key"])
def test_a_buffer_is_sent_without_evaluating_its_truth_value(buffer: Any, place: str) -> None:
    """An array has no truth value, or one that doesn't depend on its length alone."""
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    cluster.create_topic("t", partitions=2)
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with on_host(world.host("producer"), Producer, settings) as producer:
        given = {"value": b"v", place: buffer}
        first = producer.send("t", **given)
        stamped = producer.send("t", **given, timestamp_ms=np.int64(5))  # type: ignore[arg-type]
        assert first.result(timeout=5).offset == 0
        assert type(stamped.result(timeout=5).timestamp_ms) is int
