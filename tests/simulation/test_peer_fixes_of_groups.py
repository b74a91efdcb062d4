"""Former bugs of other clients in groups and commits: see tests/spec/peer_fixes.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers
from tests.simulation.test_step_work import lines_run
from tests.simulation.test_wake_ups_confluent import in_virtual_time, made
from tests.unit.clients.consumer.scripted_group import B1, Scripted, assigns

from odradek.api.consumer import Consumer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import CommitFailedError
from odradek.common.errors import kafka as errors
from odradek.compat.confluent_kafka import KafkaException
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.simulation.brokers.broker_faults import answer_error, slow_api
from odradek.simulation.brokers.broker_handlers import BY_KEY
from odradek.testing import KafkaSimulation

T0, T1 = PARTITIONS[:2]


def values(records: list[Any]) -> list[int]:
    return [int(r.value or b"") for r in records]


@pytest.mark.parametrize("version", [1, 5, 7, 9])
@pytest.mark.parametrize("code", [14, 15, 16])
def test_an_error_of_an_offset_fetch_is_not_taken_for_missing_offsets(
    version: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(versions={OffsetFetchRequest.API_KEY: (1, version)})
    with stage.consumer(group_id="g") as consumer:
        consumer.commit({T0: 5, T1: 6})
    left = 2

    def refuse(answer: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            for group in answer.groups or [answer]:
                group.error_code, group.topics = code, []

    spoil_answers(monkeypatch, OffsetFetchRequest.API_KEY, refuse)
    with stage.consumer(group_id="g") as consumer:
        found = consumer.committed([T0, T1], timeout=10.0)
        assert [o.offset for o in found.values() if o] == [5, 6]
    assert left == 0


def test_an_offset_fetch_response_with_unrequested_topics_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(versions={OffsetFetchRequest.API_KEY: (1, 7)})
    stage.write(range(9))
    with stage.consumer(group_id="g") as consumer:
        consumer.commit({T0: 1, T1: 2})

    def add(answer: Any) -> None:
        for topic in list(answer.topics):
            answer.topics.append(type(topic)("nobody", topic.partitions))
            for partition in topic.partitions:
                partition.metadata = None

    spoil_answers(monkeypatch, OffsetFetchRequest.API_KEY, add)
    with stage.consumer(group_id="g") as consumer:
        found = consumer.committed([T0, T1], timeout=5.0)
        assert [(o.offset, o.metadata) for o in found.values() if o] == [(1, ""), (2, "")]
        consumer.subscribe(["t"])
        assert stage.read(consumer, 6) == [2, 3, 5, 6, 7, 8]


def test_metadata_of_a_commit_may_contain_any_characters() -> None:
    stage = Stage()
    at = OffsetAndMetadata(3, "a\0b\0é")
    with stage.consumer(group_id="g") as consumer:
        consumer.commit({T0: at})
        assert consumer.committed([T0]) == {T0: at}


def test_the_position_after_transaction_markers_is_committed_without_another_record() -> None:
    stage = Stage(partitions=1)
    with stage.producer(transactional_id="x") as producer:
        producer.init_transactions(10.0)
        for n in range(3):
            with producer.transaction():
                producer.send("t", b"%d" % n)
    stage.world.advance(1.0)
    end = stage.cluster.log("t", 0).end_offset
    options = {"group_id": "g", "isolation_level": "read_committed"}
    with stage.consumer(**options) as consumer:
        consumer.subscribe(["t"])
        assert stage.read(consumer, 3) == [0, 1, 2]
        assert consumer.poll(0.5) == []
    with stage.consumer(**options) as consumer:
        assert consumer.committed([T0])[T0] == OffsetAndMetadata(end, "", 0)


@pytest.mark.parametrize("interval", [0, -1, 2**31 - 1])
def test_unusual_heartbeat_intervals_from_a_coordinator_are_handled(
    interval: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(answer: Any) -> None:
        answer.heartbeat_interval_ms = interval

    spoil_answers(monkeypatch, ConsumerGroupHeartbeatRequest.API_KEY, odd)
    scene = Scene("consumer")
    scene.write(range(8))
    with scene.subscribed() as a:
        assert scene.read(a, 8) == list(range(8))
        before = sum(b.requests["ConsumerGroupHeartbeat"] for b in scene.cluster.brokers.values())
        for _ in range(10):
            a.poll(1.0)
        asked = sum(b.requests["ConsumerGroupHeartbeat"] for b in scene.cluster.brokers.values())
        assert asked - before <= 110
    assert scene.log[0] == "a assigned 0 1 2 3"


@pytest.mark.parametrize("late", [False, True])
def test_a_first_heartbeat_that_is_sent_twice_creates_one_member(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene("consumer")
    scene.write(range(8))
    first = True

    def lose(broker: Any, body: Any, version: int, reply: Any) -> Any:
        nonlocal first
        answer = work(broker, body, version, reply)
        if first:
            first = False
            if late:
                scene.world.after(4.0, partial(reply, answer))
            return None
        return answer

    work = BY_KEY[ConsumerGroupHeartbeatRequest.API_KEY]
    monkeypatch.setitem(BY_KEY, ConsumerGroupHeartbeatRequest.API_KEY, lose)
    with scene.subscribed(request_timeout_ms=3000) as a:
        assert scene.read(a, 8) == list(range(8))
        for _ in range(10):
            a.poll(1.0)
        assert scene.log == ["a assigned 0 1 2 3"]


@PROTOCOLS
@pytest.mark.parametrize("way", ["poll", "poll_arrow", "records", "batches", "one long poll"])
def test_every_way_of_reading_counts_as_a_poll(protocol: str, way: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    read: dict[str, Callable[[Consumer], object]] = {
        "poll": lambda a: a.poll(1.0, 1),
        "poll_arrow": lambda a: a.poll_arrow(1.0),
        "records": lambda a: next(iter(a.records(timeout=1.0)), None),
        "batches": lambda a: next(iter(a.batches(timeout=1.0)), None),
        "one long poll": lambda a: a.poll(25.0),
    }
    with scene.subscribed(max_poll_interval_ms=10_000) as a:
        scene.read(a, 40)
        end = scene.world.now + 25.0
        while scene.world.now < end:
            read[way](a)
        assert scene.log == ["a assigned 0 1 2 3"]
        assert len(a.assignment()) == 4


@PROTOCOLS
def test_a_long_poll_reads_partitions_that_are_assigned_meanwhile(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("later", partitions=4)
    scene.write(range(1), "later")
    with scene.member("b") as b:
        b.subscribe(["later"])
        assert scene.read(b, 1) == [0]
        b.commit()
        a = scene.member("a")
        a.subscribe(["later"])
        ended = False

        def leave() -> None:
            nonlocal ended
            ended = True
            b._engine.group.leave(scene.world.now + 5.0)  # type: ignore[union-attr]
            b._host.wake()

        scene.world.after(20.0, leave)
        begun = scene.world.now
        with scene.producer() as producer:
            scene.world.after(25.0, lambda: producer.send("later", b"1", partition=0))
            assert values(a.poll(60.0)) == [1]
        assert ended
        assert scene.world.now - begun < 35.0


@PROTOCOLS
def test_a_member_whose_commit_finds_it_removed_rejoins_immediately(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    with scene.subscribed(enable_auto_commit=False) as a:
        scene.read(a, 8)
        broker = a._engine.group.coordinator.broker  # type: ignore[union-attr]
        group = scene.cluster.groups.shard(scene.cluster.brokers[broker or 0], "g").groups["g"]
        group.members.clear()
        begun = scene.world.now
        with pytest.raises(CommitFailedError):
            a.commit(timeout=5.0)
        while len(scene.log) < 3:
            a.poll(0.2)
            assert scene.world.now - begun < 2.5, scene.log
        assert scene.log == ["a assigned 0 1 2 3", "a lost 0 1 2 3", "a assigned 0 1 2 3"]


@PROTOCOLS
def test_group_metadata_is_known_in_on_assigned_and_at_the_first_record(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    known: list[Any] = []
    with scene.member() as a:
        a.subscribe(["t"], on_assigned=lambda c, _: known.append(c.group_metadata()))
        while not a.poll(0.5, 1):
            pass
        known.append(a.group_metadata())
    assert all(one.member_id and one.generation_id >= 0 for one in known)
    assert len(known) == 2


def test_a_running_group_changes_from_eager_to_cooperative_member_by_member() -> None:
    scene = Scene("classic")
    scene.write(range(400))
    both, new = ["range", "cooperative-sticky"], ["cooperative-sticky"]
    members = {n: scene.subscribed(n, partition_assignment_strategy="range") for n in "ab"}
    found: list[int] = []

    def go_on(seconds: float) -> None:
        end = scene.world.now + seconds
        while scene.world.now < end:
            for member in members.values():
                found.extend(values(member.poll(0.1, 5)))

    go_on(6.0)
    for strategy in (both, new):
        for name in "ab":
            members.pop(name).close()
            members[name] = scene.subscribed(name, partition_assignment_strategy=strategy)
            go_on(20.0)
            owned = [p for member in members.values() for p in member.assignment()]
            assert sorted(owned) == PARTITIONS
    assert sorted(found) == list(range(400))
    for member in members.values():
        member.close()


def test_a_late_heartbeat_response_does_not_undo_a_leave() -> None:
    w = Scripted()
    w.join(assigns(3, orders=[0]))
    w.replies = [assigns(4, orders=[0, 1]), 0]
    w.delays[B1] = 0.5
    w.engine.post(lambda now: w.membership.rejoin("a test", now))
    w.run(w.now + 0.1)
    w.delays[B1] = 0.0
    w.leave()
    assert (w.beats[-2].member_epoch, w.beats[-1].member_epoch) == (3, -1)
    count = len(w.beats)
    w.run(w.now + 20.0)
    assert (len(w.beats), w.membership.generation) == (count, -1)
    assert w.log == ["assigned orders-0"]


@PROTOCOLS
def test_no_position_is_reset_while_its_committed_offset_is_requested(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    with scene.member("b", enable_auto_commit=False) as b:
        b.commit(dict.fromkeys(PARTITIONS, 5))
    slow_api(scene.cluster, "OffsetFetch", 4.0)
    with scene.subscribed(auto_offset_reset="latest") as a:
        assert scene.read(a, 20) == list(range(20, 40))
    assert sum(b.requests["ListOffsets"] for b in scene.cluster.brokers.values()) == 0


@PROTOCOLS
def test_an_assignment_is_announced_once_while_its_offsets_are_requested(protocol: str) -> None:
    scene = Scene(protocol)
    cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
    options = cooperative if protocol == "classic" else {}
    slow_api(scene.cluster, "OffsetFetch", 3.0)
    a, b = scene.subscribed("a", **options), scene.subscribed("b", **options)
    end = scene.world.now + 25.0
    while scene.world.now < end:
        a.poll(0.2)
        b.poll(0.2)
    told: Counter[str] = Counter()
    for line in scene.log:
        name, what, *numbers = line.split()
        for number in numbers:
            told[name + number] += {"assigned": 1, "revoked": -1, "lost": -1}[what]
            assert 0 <= told[name + number] <= 1, scene.log
    assert sum(told.values()) == 4
    for client in (a, b):
        client.close()


@PROTOCOLS
def test_a_pattern_without_a_match_costs_few_requests(protocol: str) -> None:
    work, lists = [], 0

    def count(_: Any, __: str, request: Any) -> None:
        nonlocal lists
        lists += request.api_key == MetadataRequest.API_KEY and request.body.topics is None

    for topics in (1, 300):
        scene = Scene(protocol)
        for n in range(topics):
            scene.cluster.create_topic(f"other-{n}", partitions=1)
        a = scene.member()
        a.subscribe(pattern="nothing-.*")
        a.poll(5.0)
        scene.cluster.observers.append(count)

        def polls(member: Consumer = a) -> None:
            for _ in range(30):
                member._engine.metadata.request("a test")  # this refresh finds no changes
                member.poll(1.0)

        work.append(lines_run(polls, "clients", "metadata", "network"))
        a.close()
    assert lists == 0
    assert work[1] < 1.2 * work[0]


@pytest.mark.parametrize("api", ["OffsetCommit", "OffsetFetch"])
def test_a_request_with_a_stale_member_epoch_is_retried_with_the_next_epoch(api: str) -> None:
    scene = Scene("consumer")
    scene.write(range(8))
    with scene.subscribed(enable_auto_commit=False) as a:
        scene.read(a, 8)
        a.commit()
        answer_error(scene.cluster, api, errors.StaleMemberEpochError.code or 0, 1)
        if api == "OffsetCommit":
            assert len(a.commit({T0: 1}, timeout=10.0)) == 1
            assert scene.committed()[0] == 1
        else:
            found = a.committed(PARTITIONS, timeout=10.0)
            assert [o.offset for o in found.values() if o] == [2, 2, 2, 2]
        a.poll(2.0)
        assert scene.log == ["a assigned 0 1 2 3"]


@PROTOCOLS
def test_a_topic_that_brokers_call_invalid_is_named_and_can_be_unsubscribed(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(protocol)
    scene.write(range(8))

    def invalid(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            if topic.name == "odd":
                topic.error_code, topic.partitions = errors.InvalidTopicExceptionError.code, []

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, invalid)
    with scene.member() as a:
        a.subscribe(["odd", "t"])
        with pytest.raises(errors.InvalidTopicExceptionError, match="odd"):
            for _ in range(10):
                a.poll(1.0)
        a.unsubscribe()
        a.subscribe(["t"])
        assert scene.read(a, 8) == list(range(8))


@PROTOCOLS
def test_a_missing_topic_of_an_earlier_subscription_is_not_reported(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    with scene.member() as a:
        a.subscribe(["missing"])
        a.poll(0.5)
        a.subscribe(["t"])
        assert scene.read(a, 8) == list(range(8))
        a.poll(30.0)
        assert "missing" not in str(a.explain())
    assert "missing" not in caplog.text


@pytest.fixture
def wanted_by_confluent(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSimulation]:
    with KafkaSimulation(brokers=1) as simulation:
        simulation.create_topic("t", partitions=1)
        simulation.produce("t", [b"%d" % n for n in range(5)])
        in_virtual_time(simulation, monkeypatch)
        yield simulation


def test_partition_ends_and_errors_returned_by_confluents_consumer_do_not_move_positions(
    wanted_by_confluent: KafkaSimulation,
) -> None:
    simulation = wanted_by_confluent
    reader = made(simulation, **{"enable.partition.eof": True, "fetch.wait.max.ms": 500})
    reader.subscribe(["t"])
    found: list[Any] = []
    while len(found) < 6:
        found += reader.consume(10, 1.0)
    assert [m.error() is None for m in found] == [True] * 5 + [False]
    answer_error(simulation.cluster, "OffsetCommit", errors.OffsetMetadataTooLargeError.code or 0)
    with pytest.raises(KafkaException):
        reader.commit(asynchronous=False)
    committed = reader.commit(asynchronous=False)
    assert committed is not None
    (good,) = committed
    assert (good.offset, good.error) == (5, None)
    (after,) = reader.committed([good])
    assert (after.offset, after.error) == (5, None)
    reader.close()


def test_an_error_of_several_partitions_increases_the_backoff_once() -> None:
    scene = Scene()
    with scene.member(enable_auto_commit=False) as a:
        a.commit(dict.fromkeys(PARTITIONS, 1))
        answer_error(scene.cluster, "OffsetCommit", 14, 3)
        begun = scene.world.now
        a.commit(dict.fromkeys(PARTITIONS, 2))
        assert 0.5 < scene.world.now - begun < 1.0  # 0.1, 0.2 and 0.4 s, with a jitter of 20%
    assert scene.committed() == [2, 2, 2, 2]


@PROTOCOLS
def test_empty_automatic_commits_do_not_delay_later_commits(protocol: str) -> None:
    scene = Scene(protocol)
    with scene.subscribed(auto_commit_interval_ms=1000) as a:
        for _ in range(12):
            assert a.poll(1.0) == []
        scene.write(range(8))
        assert scene.read(a, 8) == list(range(8))
        a.poll(3.0)
        assert scene.committed() == [2, 2, 2, 2]


@PROTOCOLS
def test_no_record_is_returned_before_on_assigned_has_run(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    with scene.subscribed() as a:
        scene.world.advance(8.0)
        assert len(a.assignment()) == 4
        # In poll(), the assignment may arrive after the step that calls callbacks.
        assert a._engine.delivery.records(500, scene.world.now) == []
        assert scene.log == []
        assert scene.read(a, 8) == list(range(8))
        assert scene.log == ["a assigned 0 1 2 3"]
