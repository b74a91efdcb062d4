"""Compare the assignors with Java's assignments, recorded by `tools/assignor_vectors.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.assignor_vectors import STICKY, claims, worse

from odradek.clients.consumer.group.assignors import MemberSubscription, find, user_data
from odradek.clients.consumer.group.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.clients.consumer.group.partition_bytes import read_partitions
from odradek.common.types import TopicPartition

GROUPS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("vectors.json").read_text())
DETERMINED = [g for g in GROUPS if g["determined"]]


def partitions(names: list[str]) -> list[TopicPartition]:
    return [TopicPartition(t, int(n)) for t, _, n in (name.rpartition("-") for name in names)]


def previous(said: MemberSubscription) -> tuple[list[TopicPartition], bytes] | bytes | None:
    """Return `sticky` user data with sorted partitions, since Java writes topics in hash order."""
    if said.user_data is None or len(said.user_data) == 4:
        return said.user_data
    found, end = read_partitions(memoryview(said.user_data), 0)
    return sorted(found), said.user_data[end:]


@pytest.mark.parametrize("group", DETERMINED, ids=lambda g: g["assignor"])
def test_members_get_the_same_partitions_as_in_java(group: dict[str, Any]) -> None:
    (assignor,) = find([group["assignor"]])
    if hasattr(assignor, "partition_racks"):
        assignor.partition_racks = {
            TopicPartition(topic, number): frozenset(racks)
            for topic, there in group["topics"].items()
            for number, racks in enumerate(there)
            if racks
        }
    members = {
        member: decode_subscription(bytes.fromhex(said["said"]), said["instance"])
        for member, said in group["members"].items()
    }
    counts = {topic: len(there) for topic, there in group["topics"].items() if there}
    given = assignor.assign(members, counts)
    assert {m: encode_assignment(p).hex() for m, p in given.items()} == {
        member: said["given"] for member, said in group["members"].items()
    }


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g["assignor"])
def test_subscriptions_and_assignments_are_encoded_as_in_java(group: dict[str, Any]) -> None:
    (assignor,) = find([group["assignor"]])
    for said in group["members"].values():
        written = bytes.fromhex(said["said"])
        read = decode_subscription(written)
        assert list(read.topics) == said["topics"]
        assert list(read.owned) == partitions(said["owned"])
        assert (read.generation, read.rack) == (said["generation"], said["rack"])
        assert encode_subscription(read) == written
        last = partitions(said["last"])
        again = replace(read, user_data=user_data(assignor, last, said["generation"]))
        assert previous(again) == previous(read)
        assert len(again.user_data or b"") == len(read.user_data or b"")
        assignment = bytes.fromhex(said["given"])
        assert encode_assignment(decode_assignment(assignment).partitions) == assignment


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g["assignor"])
def test_assignments_are_not_worse_than_javas(group: dict[str, Any]) -> None:
    """Compare balance, then racks, then former owners; claims of newer generations win."""
    assert worse(group) == []


def test_the_recorded_groups_contain_partitions_that_several_members_claim() -> None:
    for name in STICKY:
        several = [
            generations
            for group in GROUPS
            if group["assignor"] == name
            for generations in claims(group).values()
            if len(generations) > 1
        ]
        assert any(len(set(found.values())) > 1 for found in several)
        assert any(len(set(found.values())) < len(found) for found in several)
