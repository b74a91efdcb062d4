"""What consumers take as partitions, and what they refuse."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from odradek.api.consumer import Consumer
from odradek.clients.consumer.partition_arguments import (
    one_partition,
    some_or_all,
    some_partitions,
)
from odradek.common.errors import ConfigurationError
from odradek.common.types import TopicPartition
from odradek.simulation import World

T0 = TopicPartition("t", 0)


class Theirs(NamedTuple):
    """As other clients have it."""

    topic: str
    partition: int


@pytest.mark.parametrize("given", [T0, ("t", 0), ["t", 0], Theirs("t", 0)])
def test_pairs_are_partitions(given: Any) -> None:
    found = one_partition(given)
    assert found == T0
    assert type(found) is TopicPartition
    assert some_partitions(iter([given])) == [T0]
    assert some_or_all([given]) == [T0]
    assert some_or_all(None) is None


@pytest.mark.parametrize("given", ["t", 7, None, ("t",), ("t", "0"), (0, "t"), ("t", True), b"t0"])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no partition: give TopicPartition"):
        one_partition(given)


@pytest.mark.parametrize("given", ["t", T0, 7])
def test_what_is_no_list_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no list of partitions"):
        some_partitions(given)


def test_every_method_of_a_consumer_reads_them() -> None:
    pair = cast(TopicPartition, ("t", 0))
    bad = cast(TopicPartition, "t-0")
    config = {"bootstrap.servers": "b:1", "group.id": "g"}
    consumer = Consumer(config, _host=World(1).host("consumer"))
    consumer.assign([pair], until={pair: 5})
    assert consumer.assignment() == [T0]
    consumer.seek(pair, 3)
    consumer.pause([pair])
    consumer.resume([pair])
    assert consumer.position(pair) == 3
    consumer.seek_to_beginning([pair])
    consumer.seek_to_end()
    for call in (
        lambda: consumer.assign([bad]),
        lambda: consumer.seek(bad, 1),
        lambda: consumer.seek_to_beginning([bad]),
        lambda: consumer.seek_to_end([bad]),
        lambda: consumer.pause([bad]),
        lambda: consumer.resume([bad]),
        lambda: consumer.position(bad),
        lambda: consumer.beginning_offsets([bad]),
        lambda: consumer.end_offsets([bad]),
        lambda: consumer.offsets_for_times({bad: 1}),
        lambda: consumer.committed([bad]),
        lambda: consumer.commit({bad: 1}),
    ):
        with pytest.raises(ConfigurationError, match="'t-0' is no partition"):
            cast(Any, call)()
    consumer.close(0)


def test_offsets_by_partition_are_told_how_to_be_sought() -> None:
    with pytest.raises(ConfigurationError, match=r"then seek\(partition, offset\) for each"):
        some_partitions({T0: 5})
