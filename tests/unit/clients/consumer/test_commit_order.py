"""Test commits that wait for each other: order, ownership of partitions, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.commit_queue import CommitQueue
from odradek.clients.consumer.group.committed_offsets import CommittedOffsets
from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.clients.consumer.ownership import Ownership
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.coordinator import Coordinator
from odradek.common.errors import (
    ClientClosedError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import OffsetMetadataTooLargeError, UnknownTopicOrPartitionError
from odradek.common.events import EventLog
from odradek.common.types import TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Task, Wait
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

P = TopicPartition("t", 0)
UNKNOWN, REFUSED, LOADING, ILLEGAL = 3, 12, 14, 22


class Counting(Engine):
    """An engine that counts how often it resumes the coroutine-like generators of calls."""

    resumed = 0

    def _resume(self, task: Task[Any], now: float) -> None:
        self.resumed += 1
        super()._resume(task, now)


class NoMetadata:
    """A fake of the metadata before the first response."""

    snapshot = None
    answered = 0
    topic_errors: ClassVar[dict[str, int]] = {}


class FakeCoordinator:
    """A coordinator that responds when the test says so, and retries retriable errors."""

    key = "g"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: list[dict[str, int]] = []
        self.replies: list[Completion[OffsetCommitResponse]] = []

    def version(self, _: object) -> int:
        return 8

    def ask(
        self,
        what: str,
        body: Callable[[float], OffsetCommitRequest],
        kind: object,
        check: Callable[[OffsetCommitResponse], KafkaError | None],
        deadline: float,
        *,
        ordered: bool,
    ) -> Flow[OffsetCommitResponse]:
        yield START
        assert ordered
        while True:
            request = body(0.0)
            self.requests.append(
                {
                    f"{t.name}-{p.partition_index}": p.committed_offset
                    for t in request.topics
                    for p in t.partitions
                }
            )
            reply: Completion[OffsetCommitResponse] = Completion()
            self.replies.append(reply)
            yield Wait((reply,), deadline)
            error = check(reply.result())
            if error is None:
                return reply.result()
            if not error.retriable:
                raise error


class Scene:
    def __init__(self) -> None:
        self.engine = Counting(EventLog("x"))
        self.now = 0.0
        self.asked = FakeCoordinator(self.engine)
        self.who = GroupIdentity("m", 1)
        self.ownership = Ownership()
        self.accepted: list[tuple[str, int]] = []
        self.stored = CommittedOffsets(
            self.engine,
            cast(Metadata, NoMetadata()),
            cast(Coordinator, self.asked),
            identity=lambda: self.who,
            timeout=lambda what, now, _: KafkaTimeoutError(
                f"timed out waiting for {what}", (), now
            ),
        )

    def commit(self, offset: int, deadline: float = 1e9) -> Completion[None]:
        return self.start({P: offset}, deadline)

    def start(self, offsets: dict[TopicPartition, int], deadline: float = 1e9) -> Completion[None]:
        given = {p: OffsetAndMetadata(o) for p, o in offsets.items()}

        def note(partition: TopicPartition, offset: OffsetAndMetadata) -> None:
            self.accepted.append((str(partition), offset.offset))

        asked = AskedCommit(given, dict.fromkeys(given, self.ownership))
        return self.engine.start(self.stored.commit(asked, deadline, accepted=note))

    def step(self, seconds: float = 0.1) -> None:
        self.now += seconds
        self.engine.step(self.now)

    def answer(self, codes: dict[str, int] | None = None, leave_out: str = "") -> None:
        """Answer the last request with these errors, and success for the other partitions."""
        topics = []
        for name in self.asked.requests[-1]:
            if name != leave_out:
                topic, _, number = name.partition("-")
                code = (codes or {}).get(name, 0)
                part = OffsetCommitResponsePartition(int(number), code)
                topics.append(OffsetCommitResponseTopic(topic, partitions=[part]))
        reply = self.asked.replies[-1]
        self.engine.post(lambda _: reply.complete(OffsetCommitResponse(topics=topics)))
        self.step()

    @property
    def sent(self) -> list[int]:
        return [request[str(P)] for request in self.asked.requests]


def test_a_new_commit_does_not_overtake_waiting_commits() -> None:
    scene = Scene()
    scene.commit(1)
    scene.step()
    scene.commit(2)
    scene.step()
    scene.commit(3)
    for _ in range(3):  # the engine sees the third commit and the first response in one step
        scene.answer()
    assert scene.sent == [1, 2, 3]


def test_the_cost_per_commit_does_not_grow_with_the_number_of_waiting_commits() -> None:
    costs = []
    for count in (10, 2000):
        scene = Scene()
        done = [scene.commit(n) for n in range(count)]
        scene.step()
        for _ in range(count):
            scene.answer()
        assert all(d.done and d.error is None for d in done)
        assert scene.sent == list(range(count))
        costs.append(scene.engine.resumed / count)
    assert costs[1] == pytest.approx(costs[0], rel=0.1)


def test_a_waiting_commit_fails_if_its_partition_is_revoked_meanwhile() -> None:
    scene = Scene()
    first, second, third = scene.commit(1), scene.commit(2), scene.commit(3)
    scene.step()
    scene.ownership.end()  # the partition was revoked, and perhaps assigned again
    scene.answer()
    assert first.error is None
    for lost in (second, third):
        assert isinstance(lost.error, CommitFailedError)
        assert "t-0: lost or assigned to another member" in str(lost.error)
    assert scene.sent == [1]
    scene.ownership = Ownership()
    scene.commit(4)
    scene.step()
    scene.who = GroupIdentity("m", 2)  # the member rejoined: a later generation
    fifth = scene.commit(5)
    scene.answer()
    scene.answer()
    assert fifth.done
    assert scene.sent == [1, 4, 5]


@pytest.mark.parametrize("joining_since", ["before", "meanwhile"])
def test_a_commit_is_retried_after_illegal_generation_while_a_join_is_pending(
    joining_since: str,
) -> None:
    """The coordinator began the next generation; its JoinGroup response hasn't arrived yet."""
    scene = Scene()
    joining = GroupIdentity("m", 1, joining=True)
    if joining_since == "before":
        scene.who = joining
    done = scene.commit(1)
    scene.step()
    scene.who = joining
    scene.answer({"t-0": ILLEGAL})
    assert scene.sent == [1, 1]
    scene.who = GroupIdentity("m", 2)
    scene.answer()
    assert done.done
    assert done.error is None
    assert scene.accepted == [("t-0", 1)]


def test_a_commit_fails_after_illegal_generation_without_a_pending_join() -> None:
    scene = Scene()
    done = scene.commit(1)
    scene.step()
    scene.answer({"t-0": ILLEGAL})
    assert isinstance(done.error, CommitFailedError)
    scene.who = GroupIdentity("m", 1, joining=True)
    done = scene.commit(1)
    scene.step()
    scene.answer({"t-0": ILLEGAL})
    scene.who = GroupIdentity("", -1, joining=True)  # the coordinator rejected the join
    scene.answer({"t-0": ILLEGAL})
    assert isinstance(done.error, CommitFailedError)


def test_commits_that_time_out_or_are_cancelled_do_not_block_later_commits() -> None:
    scene = Scene()
    first = scene.commit(1)
    late, cancelled = scene.commit(2, deadline=5.0), scene.commit(3)
    last = scene.commit(4)
    scene.step()
    scene.step(10.0)
    assert isinstance(late.error, KafkaTimeoutError)
    assert "another commit is under way" in str(late.error)
    scene.engine.cancel(cancelled, ClientClosedError("enough"))
    scene.answer()
    assert first.done
    scene.engine.cancel(last, ClientClosedError("enough"))  # `last` is first in the queue now
    scene.commit(5)
    scene.step()
    scene.answer()
    assert scene.sent == [1, 4, 5]
    assert scene.accepted == [("t-0", 1), ("t-0", 5)]


def test_a_commit_that_leaves_the_queue_when_it_is_first_lets_the_next_commit_start() -> None:
    queue = CommitQueue()
    first, second, third = queue.enter(), queue.enter(), queue.enter()
    assert [t.done for t in (first, second, third)] == [True, False, False]
    queue.leave(first)
    queue.leave(second)  # the second leaves without sending a request
    assert third.done
    queue.leave(third)
    assert len(queue) == 0
    assert queue.enter().done


def test_a_retried_commit_omits_the_partitions_that_were_accepted() -> None:
    scene = Scene()
    parts = [TopicPartition("t", n) for n in range(3)]
    done = scene.start(dict.fromkeys(parts, 7))
    scene.step()
    scene.answer({"t-1": LOADING})
    scene.answer(leave_out="t-1")
    assert not done.done
    scene.answer({"t-1": REFUSED})
    assert isinstance(done.error, OffsetMetadataTooLargeError)
    assert "t-1" in str(done.error)
    assert scene.asked.requests == [{str(p): 7 for p in parts}, {"t-1": 7}, {"t-1": 7}]
    assert scene.accepted == [("t-0", 7), ("t-2", 7)]


def test_a_commit_for_an_unknown_topic_is_retried_for_a_while_before_an_error_names_it() -> None:
    scene = Scene()
    gone = TopicPartition("gone", 3)
    done = scene.start({P: 7, gone: 8})
    scene.step()
    for _ in range(5):
        scene.answer({"gone-3": UNKNOWN})
        assert not done.done
        scene.step(0.8)
    scene.answer({"gone-3": UNKNOWN})
    scene.step(1.0)
    scene.answer({"gone-3": UNKNOWN})
    assert isinstance(done.error, UnknownTopicOrPartitionError)
    assert "no topic gone" in str(done.error)
    assert "no partition 3 of it; the other 1 partition is committed" in str(done.error)
    assert scene.accepted == [("t-0", 7)]
    assert scene.asked.requests[1:] == [{"gone-3": 8}] * 6
    # For a while, the next commits fail at once; later ones retry, as the topic may be new.
    again = scene.start({gone: 9})
    scene.step()
    scene.answer({"gone-3": UNKNOWN})
    assert isinstance(again.error, UnknownTopicOrPartitionError)
    scene.step(40.0)
    later = scene.start({gone: 9})
    scene.step()
    scene.answer({"gone-3": UNKNOWN})
    assert not later.done
    scene.answer()
    assert later.error is None
    other = scene.start({gone: 10})
    scene.step()
    scene.answer({"gone-3": UNKNOWN})
    assert not other.done, "the topic existed a moment ago"
