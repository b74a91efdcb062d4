"""Commits by the application while auto-commit is enabled, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.volume import some

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import OffsetMetadataTooLargeError
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.simulation import SimulatedBroker
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.world.environment import ReceivedRequest

P = PARTITIONS[0]
OFFSET_METADATA_TOO_LARGE = 12

WAYS: dict[str, Callable[[Consumer, list[ConsumerRecord]], Any]] = {
    "commit": lambda a, _: a.commit(),
    "commit_async": lambda a, _: a.commit_async(),
    "a record": lambda a, records: a.commit(records[-1]),
}
MEMBERS = pytest.mark.parametrize("subscribes", [True, False], ids=["subscribe", "assign"])


def reading(scene: Scene, subscribes: bool) -> Consumer:
    """Return a consumer that has processed 4 records of the first partition and holds 4 more."""
    scene.write(range(80))
    a = scene.member(auto_commit_interval_ms=1000)
    if subscribes:
        a.subscribe(["t"], on_assigned=lambda c, _: c.pause(PARTITIONS[1:]))
    else:
        a.assign(PARTITIONS[:1])
    while not a.poll(1.0, 4):
        pass
    return a


def with_four_committed(subscribes: bool) -> tuple[Scene, Consumer]:
    """Return a consumer that has auto-committed 4 records and holds the next 4."""
    scene = Scene()
    a = reading(scene, subscribes)
    a.poll(1.0, 4)
    scene.world.advance(2)
    assert scene.committed()[0] == 4
    return scene, a


@MEMBERS
@pytest.mark.parametrize("way", WAYS)
def test_auto_commit_neither_repeats_nor_undoes_a_manual_commit_of_polled_records(
    way: str, subscribes: bool
) -> None:
    scene = Scene()
    a = reading(scene, subscribes)
    records = a.poll(1.0, 4)
    WAYS[way](a, records)
    seen = set()
    for _ in range(16):
        scene.world.advance(0.25)
        seen.add(scene.committed()[0])
    assert seen == {8}
    assert len(a.poll(1.0, 4)) == 4
    scene.world.advance(2)
    assert scene.committed()[0] == 8
    a.poll(1.0, 1)
    scene.world.advance(2)
    assert scene.committed()[0] == 12
    a.close()


def test_auto_commit_continues_after_a_manual_commit_of_some_polled_records() -> None:
    scene = Scene()
    a = reading(scene, subscribes=True)
    records = a.poll(1.0, 16)
    a.commit(records[1])
    scene.world.advance(2)
    assert scene.committed()[0] == 6
    assert a.position(P) == 20
    assert a.poll(0.1) == []
    scene.world.advance(2)
    assert scene.committed()[0] == 20
    a.close()


@MEMBERS
@pytest.mark.parametrize("offset", [2, 15])
def test_a_manually_committed_offset_is_kept_until_the_next_poll(
    offset: int, subscribes: bool
) -> None:
    scene = Scene()
    a = reading(scene, subscribes)
    a.poll(1.0, 4)
    a.commit({P: OffsetAndMetadata(offset, "mine")})
    scene.world.advance(5)
    assert a.committed([P]) == {P: OffsetAndMetadata(offset, "mine")}
    a.poll(1.0, 4)
    scene.world.advance(2)
    assert scene.committed()[0] == 8
    a.commit({P: offset})
    a.seek(P, 5)
    scene.world.advance(2)
    assert scene.committed()[0] == 5
    a.commit({P: offset})
    a.close()
    assert scene.committed()[0] == offset


@contextmanager
def refusing(scene: Scene, times: int = 1) -> Iterator[None]:
    """Refuse the next `times` commits with OFFSET_METADATA_TOO_LARGE."""
    for broker in scene.cluster.brokers.values():
        broker.injections.append(Injection("OffsetCommit", OFFSET_METADATA_TOO_LARGE, times))
    yield
    for broker in scene.cluster.brokers.values():
        broker.injections.clear()


def test_a_refused_commit_is_not_repeated_by_auto_commit() -> None:
    scene = Scene()
    a = reading(scene, subscribes=True)
    records = a.poll(1.0, 4)
    for chosen in (records, {P: 2}):
        with refusing(scene), pytest.raises(OffsetMetadataTooLargeError):
            a.commit(chosen)
        scene.world.advance(2)
        assert scene.committed()[0] == 4
    a.close()


@PROTOCOLS
@pytest.mark.parametrize("interval", range(1, 6))
@pytest.mark.parametrize("leave", [Consumer.close, Consumer.unsubscribe])
def test_nothing_is_committed_after_leave_group(
    protocol: str,
    leave: Callable[[Consumer], None],
    interval: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A later commit once failed with UNKNOWN_MEMBER_ID, and the client logged a lost partition."""
    scene = Scene(protocol)
    scene.write(range(80))
    a = scene.member(auto_commit_interval_ms=interval, auto_offset_reset="earliest")
    a.subscribe(["t"])
    while not a.poll(1.0, 4):
        pass
    asked: list[str] = []

    def note(_: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        assert request.body is not None
        asked.append(request.body.API_NAME)

    scene.cluster.observers.append(note)
    leave(a)
    goodbye = asked.index("LeaveGroup" if protocol == "classic" else "ConsumerGroupHeartbeat")
    assert "OffsetCommit" in asked[:goodbye]
    assert "OffsetCommit" not in asked[goodbye:]
    assert caplog.messages == []
    assert scene.committed()[0] == 4


@MEMBERS
@pytest.mark.parametrize("chosen", [8, 15])
@pytest.mark.parametrize("lost", [True, False], ids=["answer lost", "answer late"])
def test_auto_commit_does_not_undo_a_commit_that_timed_out(
    subscribes: bool, chosen: int, lost: bool
) -> None:
    """The coordinator may have stored the commit, so auto-commit must not store a lower offset."""
    scene, a = with_four_committed(subscribes)
    for broker in scene.cluster.brokers.values():
        broker.delays[OffsetCommitRequest.API_KEY] = 3.0
    with pytest.raises(KafkaTimeoutError):
        a.commit({P: chosen}, timeout=0.5)
    if lost:
        scene.disconnect()
    for broker in scene.cluster.brokers.values():
        broker.delays.clear()
    seen = []
    for _ in range(40):
        scene.world.advance(0.25)
        seen.append(scene.committed()[0] or 0)
    assert seen == sorted(seen)
    assert seen[-1] == chosen
    assert len(a.poll(1.0, 4)) == 4
    a.poll(1.0, 1)
    scene.world.advance(2)
    assert scene.committed()[0] == 12
    a.close()


@MEMBERS
@pytest.mark.parametrize(("accepted", "refused"), [(6, [7]), (None, [6, 7])])
def test_refused_commits_do_not_change_the_committed_offset(
    subscribes: bool, accepted: int | None, refused: list[int]
) -> None:
    scene = Scene()
    a = reading(scene, subscribes)
    a.poll(1.0, 4)
    scene.world.advance(2)
    if accepted is not None:
        a.commit({P: accepted})
    with refusing(scene, len(refused)):
        for offset in refused:
            a.commit_async({P: offset})
        scene.world.advance(5)
    scene.world.advance(5)
    assert scene.committed()[0] == (accepted or 4)
    a.close()


@MEMBERS
@pytest.mark.parametrize("waits_for", ["its turn", "the coordinator"])
def test_a_commit_that_was_never_sent_is_not_stored_later(subscribes: bool, waits_for: str) -> None:
    scene = Scene()
    a = reading(scene, subscribes)
    a.poll(1.0, 4)
    a.commit({P: 5})
    brokers = scene.cluster.brokers
    if waits_for == "its turn":
        for broker in brokers.values():
            broker.delays[OffsetCommitRequest.API_KEY] = 3.0
        a.commit_async({P: 6})
    else:
        for number in brokers:
            scene.cluster.stop(number)
        scene.world.advance(0.1)
    with pytest.raises(KafkaTimeoutError):
        a.commit({P: 7}, timeout=0.5)
    for number, broker in brokers.items():
        broker.delays.clear()
        scene.cluster.start(number)
    scene.world.advance(10)
    assert scene.committed()[0] == (6 if waits_for == "its turn" else 5)
    a.close()


def test_the_committed_offset_is_still_renewed_after_a_refused_commit() -> None:
    scene = Scene()
    a = reading(scene, subscribes=True)
    a.commit({P: 4})
    a.pause([P])
    with refusing(scene), pytest.raises(OffsetMetadataTooLargeError):
        a.commit({P: 3})
    renewed: list[int] = []

    def note(_: SimulatedBroker, __: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, OffsetCommitRequest):
            renewed.extend(p.partition_index for t in request.body.topics for p in t.partitions)

    scene.cluster.observers.append(note)
    for _ in range(7):
        assert a.poll(100.0) == []
    assert P.partition in renewed
    assert scene.committed()[0] == 4
    a.close()


@MEMBERS
@pytest.mark.parametrize("code", some([12, 22, 27, 29, 30], 2))
def test_auto_commit_does_not_undo_a_stored_commit_whose_retry_was_refused(
    subscribes: bool, code: int
) -> None:
    """The response to the first attempt is lost, and the second attempt is refused."""
    scene, a = with_four_committed(subscribes)
    brokers = list(scene.cluster.brokers.values())
    for broker in brokers:
        broker.delays[OffsetCommitRequest.API_KEY] = 0.8

    def cut() -> None:
        assert scene.committed()[0] == 7
        scene.disconnect()
        for broker in brokers:
            broker.delays.clear()
            broker.injections.append(Injection("OffsetCommit", code, 1))

    scene.world.at(scene.world.now + 0.4, cut)
    with suppress(KafkaError):
        a.commit({P: 7}, timeout=10)
    for broker in brokers:
        broker.injections.clear()
    for _ in range(40):
        scene.world.advance(0.25)
        assert (scene.committed()[0] or 0) >= 7
    a.close()


@MEMBERS
@pytest.mark.parametrize("answer", [-1, 7, 15, 16])
@pytest.mark.parametrize("times", [1, 100], ids=["then refused", "until it times out"])
def test_auto_commit_does_not_undo_a_commit_stored_despite_an_error_response(
    subscribes: bool, answer: int, times: int
) -> None:
    scene, a = with_four_committed(subscribes)
    with refusing(scene):
        for broker in scene.cluster.brokers.values():
            broker.injections.insert(0, Injection("OffsetCommit", answer, times, done=True))
        with pytest.raises(KafkaError):
            a.commit({P: 7}, timeout=2)
    for _ in range(40):
        assert (scene.committed()[0] or 0) >= 7
        scene.world.advance(0.25)
    a.close()
