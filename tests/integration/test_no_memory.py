"""Check R-TI-2: a failed memory allocation ends no client and loses no record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tests.time_limits import HANG_S

from odradek import Consumer, KafkaTimeoutError, Producer, TopicPartition
from odradek.network import frame, frame_buffers
from odradek.record import kernel_encode
from odradek.record.compression import compress
from odradek.testing import FakeCluster

T0 = TopicPartition("t", 0)
VALUES = [bytes([n]) * 300_000 for n in range(3)]
LARGE = 65536


class Refusal:
    """Replacement for an allocating function that fails one of its large allocations."""

    def __init__(self, allocate: Any, number: int) -> None:
        self._allocate, self._number = allocate, number
        self.count = 0

    def __call__(self, *arguments: Any) -> Any:
        size = arguments[-1] if arguments else 0
        if (size if isinstance(size, int) else len(size)) >= LARGE:
            self.count += 1
            if self.count == self._number:
                raise MemoryError
        return self._allocate(*arguments)


@pytest.fixture
def servers() -> Iterator[dict[str, str]]:
    with FakeCluster(brokers=1, topics=["t"]) as cluster:
        yield {"bootstrap.servers": cluster.bootstrap_servers}


def read(consumer: Consumer) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < len(VALUES):
        found += [record.value or b"" for record in consumer.poll(1.0)]
    return found


def test_errors_name_the_failed_memory_allocation(
    servers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the error of a batch that times out, and the consumer's explain()."""

    def refuse(*arguments: Any) -> Any:
        raise MemoryError

    tight = {**servers, "compression.type": "zstd", "delivery.timeout.ms": 700, "linger.ms": 0}
    with monkeypatch.context() as patch, Producer({**tight, "request.timeout.ms": 500}) as producer:
        patch.setattr(kernel_encode, "compress", refuse)
        with pytest.raises(KafkaTimeoutError, match="no memory to compress") as caught:
            producer.send("t", VALUES[0]).result(HANG_S)
        assert caught.value.attempts
    with Producer(servers) as producer:
        for value in VALUES:
            producer.send("t", value).result(HANG_S)
    with monkeypatch.context() as patch, Consumer(servers, background=False) as consumer:
        consumer.assign([T0])
        consumer.seek_to_beginning([T0])
        consumer.position(T0)
        patch.setattr(frame_buffers, "bytearray", refuse, raising=False)
        until = time.monotonic() + HANG_S
        while "no memory for its response" not in str(consumer.explain()):
            assert consumer.poll(0.1) == []
            assert time.monotonic() < until, consumer.explain()


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("module", "name", "allocate"),
    [
        (frame, "bytearray", bytearray),
        (frame_buffers, "bytearray", bytearray),
        (kernel_encode, "compress", compress),
    ],
)
def test_clients_recover_if_one_large_buffer_can_not_be_allocated(
    servers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    allocate: Any,
    background: bool,
) -> None:
    """Fail one large buffer; without compression there are large responses and no compressor."""
    codec = "zstd" if name == "compress" else "none"
    refused = 0
    for number in range(1, 9):
        first = {"auto.offset.reset": "earliest"}
        refusal = Refusal(allocate, number)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refusal, raising=False)
            with (
                Producer({**servers, "compression.type": codec}) as producer,
                Consumer({**servers, **first}, background=background) as consumer,
            ):
                consumer.assign([T0])
                consumer.seek_to_end([T0])
                consumer.position(T0)
                for value in VALUES:
                    producer.send("t", value).result(HANG_S)
                assert read(consumer) == VALUES
        refused += refusal.count >= number
    assert refused
