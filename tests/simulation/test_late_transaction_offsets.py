"""Offsets of a transaction that are stored late, after their call ended without a response.

They must neither replace those of a later call nor be part of a later transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.transactional import P0, Scene

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.simulation.brokers.broker_handlers import BY_KEY

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
P1 = TopicPartition("t", 1)


class Interrupted(BaseException):
    """The exception of a signal handler."""


class Late:
    """Store the offsets of the next TxnOffsetCommit this number of seconds after it arrived."""

    def __init__(self, scene: Scene, patch: pytest.MonkeyPatch, seconds: float) -> None:
        self.arrived: list[int] = []
        self.carried_out: list[int] = []
        """The offsets of each request that was carried out."""
        work = BY_KEY[TxnOffsetCommitRequest.API_KEY]

        def handler(
            broker: Any, body: Any, version: int, reply: Callable[[Message | None], None]
        ) -> Message | None:
            offsets = [p.committed_offset for topic in body.topics for p in topic.partitions]
            first = not self.arrived
            self.arrived += offsets

            def carry_out() -> Message | None:
                self.carried_out.extend(offsets)
                return work(broker, body, version, reply)

            def later() -> None:
                if (answer := carry_out()) is not None:
                    reply(answer)

            if not first:
                return carry_out()
            scene.world.after(seconds, later)
            return None

        patch.setitem(BY_KEY, TxnOffsetCommitRequest.API_KEY, handler)


@VERSIONS
def test_offsets_of_a_later_call_in_the_transaction_are_kept(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(version)
    with scene.producer() as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 1}, "g")
        late = Late(scene, monkeypatch, 5.0)
        with producer.transaction():
            producer.send("t", b"0", partition=0).result(timeout=10)
            with pytest.raises(KafkaTimeoutError):
                producer.send_offsets_to_transaction({P0: 5}, "g", timeout=3)
            producer.send_offsets_to_transaction({P0: 9}, "g")
            scene.world.advance(3.0)  # the program continues
    assert late.carried_out == [5, 9]
    assert scene.committed(P0) == [OffsetAndMetadata(9)]


@VERSIONS
@pytest.mark.parametrize("how", ["timeout", "interruption"])
def test_offsets_of_an_aborted_transaction_are_not_part_of_a_later_one(
    version: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(version)
    cluster, groups = scene.cluster, scene.cluster.groups
    with scene.producer() as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 1}, "g")
        # With a separate broker as group coordinator, its connection has no other requests.
        other = scene.coordinator() % 3 + 1
        cluster.move_leader("__consumer_offsets", groups.index("g"), to=other)
        for p in range(3):
            cluster.move_leader("t", p, to=scene.coordinator())
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 2}, "g")
        late = Late(scene, monkeypatch, 1.5)

        def interrupt() -> None:
            raise Interrupted

        with pytest.raises((Interrupted, KafkaTimeoutError)), producer.transaction():
            producer.send("t", b"0", partition=0).result(timeout=10)
            if how == "interruption":
                scene.world.after(0.5, interrupt)
            producer.send_offsets_to_transaction({P1: 99}, "g", timeout=0.5 + (how != "timeout"))
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 3}, "g")
    scene.world.advance(2.0)
    assert late.arrived == [99, 3]
    assert sorted(late.carried_out) == [3, 99]
    assert scene.committed(P0, P1) == [OffsetAndMetadata(3), None]
