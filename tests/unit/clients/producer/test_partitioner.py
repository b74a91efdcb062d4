"""Test the default partitioner: Java's hash for keys, sticky partitions without a key."""

from __future__ import annotations

import itertools
import random

import pytest

from odradek.clients.producer.partitioner import Partitioner
from odradek.metadata.cluster import NO_ID, Topic
from odradek.metadata.partitions import Partition

STRIDE = 1000


def topic(*leaders: int, name: str = "t") -> Topic:
    return Topic(name, NO_ID, tuple(Partition(n, leader, 0) for n, leader in enumerate(leaders)))


def partitioner(seed: int = 1) -> Partitioner:
    return Partitioner(random.Random(seed), stride=STRIDE, ignore_keys=False)


def test_records_without_a_key_stay_on_a_partition_for_one_stride_of_bytes() -> None:
    chosen = partitioner()
    sizes = 100
    places = [chosen.partition(topic(0, 1, 2), sizes) for _ in range(200)]
    runs = [places[at : at + STRIDE // sizes] for at in range(0, 200, STRIDE // sizes)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(a[0] != b[0] for a, b in itertools.pairwise(runs))
    assert set(places) == {0, 1, 2}


def test_records_of_other_topics_do_not_count_towards_a_topics_stride() -> None:
    chosen = partitioner()
    first = chosen.partition(topic(0, 1, 2, name="a"), STRIDE - 1)
    for _ in range(5):
        chosen.partition(topic(0, 1, 2, name="b"), STRIDE)
    assert chosen.partition(topic(0, 1, 2, name="a"), 1) == first


@pytest.mark.parametrize("seed", range(10))
def test_partitions_without_a_leader_are_avoided(seed: int) -> None:
    chosen = partitioner(seed)
    places = {chosen.partition(topic(-1, 1, -1, 2), STRIDE) for _ in range(40)}
    assert places == {1, 3}


def test_if_no_partition_has_a_leader_any_is_chosen() -> None:
    places = {partitioner(seed).partition(topic(-1, -1), 1) for seed in range(20)}
    assert places == {0, 1}


def test_a_single_partition_is_always_chosen() -> None:
    chosen = partitioner()
    assert {chosen.partition(topic(0), STRIDE) for _ in range(5)} == {0}


def test_after_a_topic_is_recreated_with_fewer_partitions_only_existing_ones_are_chosen() -> None:
    chosen = Partitioner(random.Random(3), stride=10**9, ignore_keys=False)
    while chosen.partition(topic(-1, -1, 0), 1) != 2:
        pass
    assert chosen.partition(topic(0, 0), 1) in (0, 1)
