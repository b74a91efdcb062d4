"""Test the partitions that consumers accept and reject as arguments."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.clients.consumer.partition_arguments import (
    one_partition,
    place,
    places,
    some_or_all,
    some_partitions,
    these_partitions,
)
from odradek.clients.consumer.records import OffsetAndMetadata, OffsetAndTimestamp
from odradek.common.errors import ConfigurationError, IllegalStateError
from odradek.common.types import TopicPartition
from odradek.simulation import World

T0 = TopicPartition("t", 0)


class OtherPartition(NamedTuple):
    """A partition class like those of other clients."""

    topic: str
    partition: int


@pytest.mark.parametrize("given", [T0, ("t", 0), ["t", 0], OtherPartition("t", 0)])
def test_pairs_are_accepted_as_partitions(given: Any) -> None:
    found = one_partition(given)
    assert found == T0
    assert type(found) is TopicPartition
    assert some_partitions(iter([given])) == [T0]
    assert some_or_all([given]) == [T0]
    assert some_or_all(None) is None


@pytest.mark.parametrize("given", ["t", 7, None, ("t",), ("t", "0"), (0, "t"), ("t", True), b"t0"])
def test_invalid_partitions_are_rejected(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected TopicPartition"):
        one_partition(given)


@pytest.mark.parametrize("given", [-1, -2, "earliest", 1.5, True])
def test_the_error_for_a_special_offset_names_seek_to_beginning(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="seek_to_beginning"):
        place("offset", given)


def test_the_error_for_an_unassigned_partition_lists_the_assigned_partitions() -> None:
    consumer = on_host(World(1).host("c"), Consumer, {"bootstrap.servers": "b:1"})
    other = TopicPartition("t", 9)
    with pytest.raises(IllegalStateError, match="t-9 isn't assigned .*assigned: no partitions"):
        consumer.seek(other, 1)
    consumer.assign([TopicPartition("t", n) for n in range(7)])
    with pytest.raises(IllegalStateError, match="assigned: t-0, t-1, t-2, t-3, t-4 and 2 more"):
        consumer.seek(other, 1)


@pytest.mark.parametrize("given", ["t", T0, 7])
def test_a_single_partition_is_rejected_where_a_list_is_expected(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a list of partitions"):
        some_partitions(given)


def test_every_method_of_a_consumer_checks_partitions() -> None:
    pair = cast(TopicPartition, ("t", 0))
    bad = cast(TopicPartition, "t-0")
    config = {"bootstrap.servers": "b:1", "group.id": "g"}
    consumer = on_host(World(1).host("consumer"), Consumer, config)
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
        with pytest.raises(ConfigurationError, match="TopicPartition.* not 't-0'"):
            cast(Any, call)()
    consumer.close(0)


def test_partitions_are_accepted_as_separate_arguments_or_as_a_list() -> None:
    one: Any = TopicPartition("t", 1)
    for given in ((T0, one), ([T0, one],), ((("t", 0), ["t", 1]),), (T0, [one])):
        assert these_partitions(given) == [T0, one]
    assert these_partitions(()) == []
    assert these_partitions(([],)) == []
    for bad in (("t", 0), (7,), ({T0: 1},)):
        with pytest.raises(
            ConfigurationError, match="expected (a list of partitions|TopicPartition)"
        ):
            these_partitions(bad)


def test_a_position_may_be_an_offset_or_an_object_that_contains_an_offset() -> None:
    assert place("offset", np.int64(5)) == (5, -1)
    assert place("offset", OffsetAndMetadata(5, "x", 3)) == (5, 3)
    assert place("offset", OffsetAndTimestamp(5, 1_000, 2)) == (5, 2)
    assert places({("t", 0): OffsetAndMetadata(5)}) == {T0: (5, -1)}
    with pytest.raises(ConfigurationError, match=r"the offset of t-0 is None, .*seek_to_end\(\)"):
        places({T0: None})
    for bad in (2.5, True, "5", -1, OffsetAndMetadata(-1)):
        with pytest.raises(ConfigurationError, match="offset must be"):
            place("offset", bad)
