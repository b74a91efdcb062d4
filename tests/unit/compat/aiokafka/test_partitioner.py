"""Test that keys are assigned to the same partitions as in aiokafka."""

from __future__ import annotations

from random import Random

from aiokafka.partitioner import DefaultPartitioner as Theirs
from aiokafka.partitioner import murmur2 as their_murmur2

from odradek.compat.aiokafka.partitioner import DefaultPartitioner, murmur2

ALL = [0, 1, 2, 3, 4, 5, 6]


def test_keys_have_the_same_hash_and_partition_as_in_aiokafka() -> None:
    rng, ours, theirs = Random(7), DefaultPartitioner(), Theirs()
    for size in range(40):
        key = rng.randbytes(size)
        assert murmur2(key) == their_murmur2(key)
        assert ours(key, ALL, [3]) == theirs(key, ALL, [3])


def test_a_record_without_a_key_is_assigned_to_an_available_partition() -> None:
    found = {DefaultPartitioner()(None, ALL, [2, 5]) for _ in range(100)}
    assert found == {2, 5}
    assert DefaultPartitioner()(None, [4], []) == 4
