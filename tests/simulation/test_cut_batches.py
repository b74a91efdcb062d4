"""The first batch of a fetch is incomplete, or its length exceeds the limit of a response.

poll() raises an error that names the batch, again after each backoff, and other partitions are
read. It must not return [] forever and fetch without a pause.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.common.errors import CorruptRecordError, KafkaError
from odradek.common.errors.records import FetchTooLargeError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.primitives import records_view

BAD, SOUND = TopicPartition("t", 0), TopicPartition("t", 1)
Spoil = Callable[[bytes], bytes]


def claiming(length: int) -> Spoil:
    return lambda batch: batch[:8] + struct.pack(">i", length) + batch[12:]


def cut(batch: bytes) -> bytes:
    return batch[:40]


class Scene(Stage):
    """Two partitions; the next `often` responses have a modified first batch of one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, spoil: Spoil, often: int = 10_000) -> None:
        self.fetches, self.left, self.spoil = 0, often, spoil
        spoil_answers(patch, FetchRequest.API_KEY, self._spoil)
        super().__init__(3, brokers=1, partitions=2)
        self.writer = self.producer(linger_ms=0)
        for n in range(5):
            self.send(BAD, n)
            self.send(SOUND, n)
        self.reader = self.consumer()
        self.reader.assign([BAD, SOUND])

    def send(self, to: TopicPartition, n: int) -> None:
        self.writer.send(to.topic, b"%d" % n, partition=to.partition).result(5)

    def _spoil(self, answer: FetchResponse) -> None:
        self.fetches += 1
        for topic in answer.responses:
            for data in topic.partitions:
                records = bytes(records_view(data.records) or b"")
                if data.partition_index == 0 and records[:8] == bytes(8) and self.left:
                    self.left -= 1
                    data.records = memoryview(self.spoil(records))


@pytest.mark.parametrize(
    ("spoil", "kind", "option"),
    [
        (cut, CorruptRecordError, "max.partition.fetch.bytes"),
        (claiming(1 << 21), CorruptRecordError, "max.partition.fetch.bytes"),
        (claiming(1 << 30), FetchTooLargeError, "fetch.max.bytes"),
        (claiming(2**31 - 1), FetchTooLargeError, "fetch.max.bytes"),
    ],
)
def test_poll_raises_an_error_that_names_the_batch_and_reads_other_partitions(
    monkeypatch: pytest.MonkeyPatch, spoil: Spoil, kind: type[KafkaError], option: str
) -> None:
    scene = Scene(monkeypatch, spoil)
    found: list[bytes] = []
    errors: list[KafkaError] = []
    before, end = scene.fetches, scene.world.now + 10
    n = 5
    while scene.world.now < end:
        scene.send(SOUND, n)
        n += 1
        try:
            found += [r.value or b"" for r in scene.reader.poll(1.0)]
        except KafkaError as error:
            errors.append(error)
        scene.world.advance(0.1)
    assert len(found) > n - 3, "the sound partition"
    assert 5 <= len(errors) <= 40
    for one in errors:
        assert isinstance(one, kind)
        assert (getattr(one, "partition", None), getattr(one, "offset", None)) == (BAD, 0)
        for part in ("t-0", "offset 0", option, "seek()"):
            assert part in str(one)
    assert scene.fetches - before < 3 * len(found) + 4 * len(errors)
    scene.reader.seek(BAD, 1)
    rest: list[int] = []
    while len(rest) < 4:
        rest += [r.offset for r in scene.reader.poll(5.0) if r.partition == 0]
    assert rest == [1, 2, 3, 4]


@pytest.mark.parametrize("often", [1, 2])
def test_a_batch_that_is_complete_in_the_next_fetch_raises_no_error(
    monkeypatch: pytest.MonkeyPatch, often: int
) -> None:
    scene = Scene(monkeypatch, cut, often)
    found: list[Any] = []
    while len(found) < 10:
        found += [(r.partition, r.offset) for r in scene.reader.poll(5.0)]
    assert sorted(found) == [(p, n) for p in range(2) for n in range(5)]
