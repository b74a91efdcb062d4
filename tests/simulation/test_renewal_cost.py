"""Count requests, bytes and Python calls of the renewals of many idle partitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.volume import WHOLE

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.clients.consumer.group.auto_commit import RENEWAL_INTERVAL
from odradek.clients.consumer.group.committed_offsets import CommittedOffsets
from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.common.types import TopicPartition

PARTITIONS = 10_000 if WHOLE else 400
MOST_CALLS, MOST_BYTES = 500, 30
"""Limits per partition: calls of functions in `odradek.clients` in ten minutes (nearly all of them
check, each auto.commit.interval.ms, whether an offset is due), and bytes of a renewal.
"""


class Sent:
    """One OffsetCommit request."""

    def __init__(self, request: Any, version: int) -> None:
        self.partitions = {
            (t.name, p.partition_index) for t in request.topics for p in t.partitions
        }
        self.bytes = sum(map(len, request.encode(version)))


@contextmanager
def calls_counted() -> Iterator[Callable[[], int]]:
    """Count calls of functions of the client, excluding the simulated brokers."""
    found, known = 0, dict[CodeType, bool]()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        del argument
        code = frame.f_code
        if code not in known:
            known[code] = "/odradek/clients/" in code.co_filename
        found += event == "call" and known[code]

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield lambda: found
    finally:
        sys.setprofile(before)


def idle(stage: Stage, client: Consumer, seconds: float) -> None:
    end = stage.world.now + seconds
    while stage.world.now < end:
        stage.world.advance(20.0)
        assert client.poll(0) == []


def test_many_idle_partitions_are_renewed_in_several_small_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Sent] = []
    build = CommittedOffsets.commit_request

    def built(stored: CommittedOffsets, *given: Any) -> Any:
        request = build(stored, *given)
        sent.append(Sent(request, stored.coordinator.version(type(request)) or 0))
        return request

    monkeypatch.setattr(CommittedOffsets, "commit_request", built)
    stage = Stage(partitions=0)
    stage.cluster.create_topic("many", PARTITIONS)
    with stage.client(Admin, mode="messages") as admin:
        admin.alter_group_offsets("g", {TopicPartition("many", n): 0 for n in range(PARTITIONS)})
    given = {"group_protocol": "consumer", "fetch_max_wait_ms": 20_000}
    client = stage.consumer(mode="messages", group_id="g", **given)
    client.subscribe(["many"])
    states = client._engine.subscription.partitions
    while len(states) < PARTITIONS or any(s.position is None for s in states.values()):
        client.poll(1.0)
    with calls_counted() as calls:
        idle(stage, client, RENEW_AFTER)
    assert len(set().union(*(one.partitions for one in sent))) == PARTITIONS
    renewed = sum(len(one.partitions) for one in sent)
    assert renewed < 2 * PARTITIONS
    assert len(sent) <= RENEW_AFTER / RENEWAL_INTERVAL
    assert max(len(one.partitions) for one in sent) < PARTITIONS / 4
    assert sum(one.bytes for one in sent) < MOST_BYTES * renewed
    assert 0 < calls() < MOST_CALLS * PARTITIONS
    client.close()
