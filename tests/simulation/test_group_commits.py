"""When a group consumer commits, and which offsets, in virtual time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.errors import (
    ClientBrokenError,
    CommitFailedError,
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import FencedInstanceIdError, UnknownTopicOrPartitionError
from odradek.protocol.messages.offset_commit import OffsetCommitRequest

COOPERATIVE = "cooperative-sticky"


def one_partition(scene: Scene, **config: Any) -> Consumer:
    found = scene.member(**config)
    found.assign(PARTITIONS[:1])
    return found


def test_a_loop_commits_a_record_only_after_the_next_one_is_requested() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed(auto_commit_interval_ms=1000)
    for n, _ in enumerate(itertools.islice(a.records(), 13), 1):
        scene.world.advance(2.5)
        assert sum(o or 0 for o in scene.committed()) == n - 1
    a.close()
    assert sum(o or 0 for o in scene.committed()) == 13


@pytest.mark.parametrize("way", ["poll", "poll_arrow", "batches"])
def test_polled_records_are_committed_by_the_next_poll(way: str) -> None:
    scene = Scene()
    scene.write(range(40))
    a = one_partition(scene, auto_commit_interval_ms=1000)
    batches: Iterator[Any] = a.batches()
    ways: dict[str, Callable[[], Any]] = {
        "poll": lambda: a.poll(1.0, 10),
        "poll_arrow": lambda: a.poll_arrow(1.0),
        "batches": lambda: next(batches),
    }
    ask = ways[way]
    assert len(ask()) == 10
    scene.world.advance(5)
    assert scene.committed()[0] == 0  # only the initial position is committed
    scene.write(range(40, 44))
    assert len(ask()) == 1
    scene.world.advance(5)
    assert scene.committed()[0] == 10
    a.close()
    assert scene.committed()[0] == 11


def test_a_with_block_left_by_an_error_does_not_commit_the_current_record() -> None:
    scene = Scene()
    scene.write(range(40))
    with pytest.raises(ZeroDivisionError), scene.subscribed() as a:
        for n, _ in enumerate(a.records()):
            if n == 25:
                raise ZeroDivisionError
    assert sum(o or 0 for o in scene.committed()) == 25


def read_by_hand(protocol: str) -> tuple[Scene, Consumer]:
    """Return a member that has read 40 records, without auto-commit."""
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(enable_auto_commit=False)
    scene.read(a, 40)
    return scene, a


@PROTOCOLS
def test_unsubscribe_commits_and_a_later_subscription_works(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 40)
    a.unsubscribe()
    assert a.assignment() == []
    assert a.subscription() == set()
    assert scene.committed() == [10, 10, 10, 10]
    with pytest.raises(IllegalStateError, match="nothing to read"):
        a.poll(0)
    a.assign(PARTITIONS[:1])
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        a.subscribe(["t"])
    assert a.position(PARTITIONS[0]) == 10
    a.unsubscribe()
    a.subscribe(["t"])
    scene.write(range(40, 44))
    assert scene.read(a, 4) == list(range(40, 44))
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        a.assign(PARTITIONS)


def test_another_assignment_commits_records_of_the_previous_one() -> None:
    scene = Scene()
    scene.write(range(40))
    a = one_partition(scene, auto_commit_interval_ms=600_000)
    assert len(a.poll(1.0, 6)) == 6
    a.assign(PARTITIONS[1:2])
    assert len(a.poll(1.0, 3)) == 3
    assert scene.committed() == [6, None, None, None]
    a.unsubscribe()
    scene.world.advance(0.1)
    assert scene.committed() == [6, 3, None, None]


def test_poll_raises_without_a_committed_offset_and_a_reset_policy() -> None:
    scene = Scene()
    scene.write(range(8))
    a = one_partition(scene, auto_offset_reset="none")
    with pytest.raises(IllegalStateError, match="t-0 has no committed offset, and auto.offset"):
        a.poll(1.0)
    a.seek(PARTITIONS[0], 1)
    assert [r.offset for r in a.poll(1.0)] == [1]


def test_commit_accepts_records_batches_and_offsets() -> None:
    scene = Scene()
    scene.write(range(40))
    a = one_partition(scene, enable_auto_commit=False)
    records = a.poll(1.0, 5)
    assert a.commit(records[1]) == {PARTITIONS[0]: OffsetAndMetadata(2, "", 0)}
    assert a.commit(records[:3]) == {PARTITIONS[0]: OffsetAndMetadata(3, "", 0)}
    assert a.commit({PARTITIONS[2]: 7}) == {PARTITIONS[2]: OffsetAndMetadata(7)}
    assert scene.committed() == [3, None, 7, None]
    assert a.commit() == {PARTITIONS[0]: OffsetAndMetadata(5, "", 0)}
    batch = a.poll_arrow(1.0, columns=["offset", "partition", "topic"])
    assert batch is not None
    assert a.commit(batch.slice(0, 2)) == {PARTITIONS[0]: OffsetAndMetadata(7)}
    table = pa.Table.from_batches([batch])
    assert a.commit(table)[PARTITIONS[0]].offset == 10
    with pytest.raises(ConfigurationError, match="has no partition and no offset"):
        a.commit(batch.select(["topic"]))
    with pytest.raises(ConfigurationError, match="not str"):
        a.commit(cast(Any, "t"))
    with pytest.raises(ConfigurationError, match="0 or more, not -1"):
        a.commit({PARTITIONS[0]: -1})
    told: list[Any] = []
    a.commit_async({PARTITIONS[0]: 4}, lambda offsets, error: told.append((offsets, error)))
    a.commit_async({PARTITIONS[0]: 5})
    a.poll(1.0)
    assert told == [({PARTITIONS[0]: OffsetAndMetadata(4)}, None)]
    assert scene.committed()[0] == 5
    assert a.group_metadata() == ConsumerGroupMetadata("g")
    a.close()
    assert scene.committed()[0] == 5


@PROTOCOLS
def test_a_commit_by_a_consumer_outside_of_an_active_group_is_refused(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 40)
    stranger = one_partition(scene)
    with pytest.raises(CommitFailedError, match="other consumers have joined"):
        stranger.commit({PARTITIONS[0]: 1})


@PROTOCOLS
def test_an_application_that_does_not_poll_loses_its_partitions(
    protocol: str,
) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(max_poll_interval_ms=10_000, auto_commit_interval_ms=600_000)
    scene.read(a, 40)
    scene.world.advance(15)
    with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
        a.commit({PARTITIONS[0]: 10})
    b = scene.subscribed("b")
    assert scene.read(b, 40) == list(range(40))  # `a` never committed
    b.close()
    a.poll(1.0)
    assert scene.log[:3] == ["a assigned 0 1 2 3", "b assigned 0 1 2 3", "b revoked 0 1 2 3"]
    assert scene.log[3] == "a lost 0 1 2 3"
    a.poll(10.0)
    assert scene.log[4] == "a assigned 0 1 2 3"


@PROTOCOLS
def test_a_deleted_topic_does_not_delay_a_rebalance_and_raises_an_error(protocol: str) -> None:
    scene = Scene(protocol)
    cooperative = {} if protocol == "consumer" else {"partition_assignment_strategy": COOPERATIVE}
    scene.cluster.create_topic("u", partitions=4)
    scene.write(range(40))
    scene.write(range(40), "u")
    a = scene.member("a", auto_commit_interval_ms=600_000, **cooperative)
    a.subscribe(["t", "u"])
    scene.read(a, 80)
    scene.cluster.delete_topic("u")
    began = scene.world.now
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic u .*other 4 partitions"):
        a.commit()
    assert scene.world.now - began < 7
    assert scene.committed() == [10, 10, 10, 10]
    scene.write(range(40, 44))
    began = scene.world.now
    b = scene.subscribed("b", **cooperative)
    while not b.assignment():
        a.poll(0.1)
        b.poll(0.1)
        assert scene.world.now - began < 15


def test_callbacks_of_earlier_commits_are_called_before_a_commit_returns() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(enable_auto_commit=False)
    told: list[Any] = []

    def note(offsets: Any, error: KafkaError | None) -> None:
        told.append((offsets[PARTITIONS[0]].offset, error))
        a.commit({PARTITIONS[1]: 1})  # no callback is called inside of another one
        told.append("through")

    a.subscribe(["t"], **scene.callbacks("a"))
    scene.world.advance(3)
    a.commit_async({PARTITIONS[0]: 1}, note)
    a.commit_async({PARTITIONS[0]: 2}, note)
    a.commit({PARTITIONS[0]: 3})
    assert told == [(1, None), "through", (2, None), "through"]
    assert scene.log == [], "callbacks of the rebalance wait for poll()"
    a.close()
    assert scene.committed() == [3, 1, None, None]


@pytest.mark.parametrize("subscribes", [True, False], ids=["subscribe", "assign"])
def test_close_waits_for_commits_and_calls_their_callbacks(subscribes: bool) -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.member(enable_auto_commit=False)
    told: list[Any] = []
    if subscribes:  # close() also waits for the commit that on_revoked begins
        last = {PARTITIONS[1]: 9}
        a.subscribe(
            ["t"], on_revoked=lambda c, _: c.commit_async(last, lambda *end: told.append(end))
        )
        scene.read(a, 40)
    else:
        a.assign(PARTITIONS)
    for n in range(3):
        a.commit_async({PARTITIONS[0]: n + 1}, lambda *end: told.append(end))
    a.close()
    expected = [({PARTITIONS[0]: OffsetAndMetadata(n + 1)}, None) for n in range(3)]
    if subscribes:
        expected.append(({PARTITIONS[1]: OffsetAndMetadata(9)}, None))
    assert told == expected
    assert scene.committed()[:2] == [3, 9 if subscribes else None]


@PROTOCOLS
def test_close_without_a_cluster_fails_pending_commits_in_time(protocol: str) -> None:
    scene, a = read_by_hand(protocol)
    every_broker(scene.cluster, "crash")
    told: list[Any] = []

    def again(_: object, error: KafkaError | None) -> None:
        told.append(error)
        a.commit_async({PARTITIONS[0]: 1}, again)  # no caller waits for this commit

    a.commit_async({PARTITIONS[0]: 1}, again)
    began = scene.world.now
    a.close(timeout=3)
    assert scene.world.now - began < 3.2
    assert isinstance(told[0], KafkaTimeoutError)
    assert "commit_async() of group 'g'" in str(told[0])
    assert len(told) <= 2


@pytest.mark.parametrize("ends", ["before it begins", "meanwhile"])
def test_commits_of_a_client_that_ends_are_reported_at_close(ends: str) -> None:
    scene = Scene()
    scene.write(range(8))
    a = one_partition(scene, enable_auto_commit=False)
    scene.read(a, 2)
    broken, told = ClientBrokenError("a test says so"), list[KafkaError | None]()

    def end() -> None:
        a._engine.post(lambda _: a._engine.end(broken, "broken", error="x"))

    if ends == "before it begins":
        end()
    a.commit_async(callback=lambda _, error: told.append(error))
    if ends == "meanwhile":
        end()
        a._host.wake()
    scene.world.advance(1.0)
    with pytest.raises(ClientBrokenError):
        a.poll(0.5)
    with pytest.raises(ClientBrokenError):
        a.commit_async(callback=lambda _, error: told.append(error))
    a.close()
    a.close()
    assert told == [broken]


def test_unsubscribe_after_assign_waits_for_commits_and_calls_their_callbacks() -> None:
    scene = Scene()
    scene.write(range(8))
    a = one_partition(scene, enable_auto_commit=False)
    told: list[Any] = []

    def note(offsets: Any, error: KafkaError | None) -> None:
        told.append((offsets[PARTITIONS[0]].offset, error))
        a.unsubscribe()  # a call inside of a callback doesn't wait for itself

    scene.read(a, 2)
    a.commit_async({PARTITIONS[0]: 1}, note)
    a.unsubscribe()
    assert told == [(1, None)]
    assert scene.committed()[0] == 1
    every_broker(scene.cluster, "crash")
    a.assign(PARTITIONS[:1])
    a.commit_async({PARTITIONS[0]: 2}, note)
    began = scene.world.now
    a.unsubscribe(timeout=2.0)
    assert scene.world.now - began < 2.2
    assert isinstance(told[1][1], KafkaTimeoutError)
    a.close(0.0)
    assert len(told) == 2


def test_commits_begun_by_callbacks_during_close_are_finished_or_refused() -> None:
    scene = Scene()
    scene.write(range(8))
    a = scene.subscribed(enable_auto_commit=False)
    scene.read(a, 8)
    every_broker(scene.cluster, "crash")
    begun, told = [0], list[int]()

    def again(number: int) -> None:
        def callback(*_: object) -> None:
            told.append(number)
            again(number + 1)

        a.commit_async({PARTITIONS[0]: 1}, callback)
        begun.append(number)

    again(1)
    a.close(timeout=1)
    assert told == begun[1:]
    assert 1 <= len(told) <= 3


def test_the_error_of_a_fenced_members_commit_contains_a_remedy() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed(group_instance_id="one", heartbeat_interval_ms=9_000)
    scene.read(a, 40)
    scene.subscribed("b", group_instance_id="one")
    scene.world.advance(2)
    with pytest.raises(
        FencedInstanceIdError, match="'one' and took.*a different group.instance.id"
    ):
        a.commit()


def test_close_of_a_fenced_static_member_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed(group_instance_id="one")
    scene.read(a, 40)
    scene.subscribed("b", group_instance_id="one")
    scene.world.advance(10)  # a heartbeat reports the fencing; poll() isn't called afterwards
    assert "FencedInstanceIdError" in str(a.explain().group)
    a.close()
    assert "a lost 0 1 2 3" in scene.log
    assert any("refused this consumer" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_committed_waits_for_offsets_of_an_open_transaction(isolation: str) -> None:
    scene = Scene()
    scene.write(range(4))
    producer = scene.transactional()
    a = one_partition(scene, isolation_level=isolation, enable_auto_commit=False)
    a.commit({PARTITIONS[0]: 1})
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PARTITIONS[0]: 3}, ConsumerGroupMetadata("g"))
    began = scene.world.now
    with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
        a.committed(PARTITIONS[:1], timeout=2)
    assert scene.world.now - began == pytest.approx(2, abs=0.1)

    def end() -> None:
        transactions = producer._engine.transactions
        assert transactions is not None
        producer._engine.start(transactions.commit(1e9))
        producer._host.wake()

    scene.world.after(1.5, end)
    began = scene.world.now
    found = a.committed(PARTITIONS[:1], timeout=10)[PARTITIONS[0]]
    assert found is not None
    assert found.offset == 3
    assert 1.4 < scene.world.now - began < 4
    for client in (a, producer):
        client.close()


def hangs_with_the_offset_of_the_first(scene: Scene) -> Producer:
    """Return a producer with an open transaction that has sent an offset of the first partition."""
    producer = scene.transactional("hangs", transaction_timeout_ms=100_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PARTITIONS[0]: 1}, ConsumerGroupMetadata("g"))
    return producer


def test_a_partition_with_an_unstable_offset_is_reported_and_others_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(range(8))
    producer = hangs_with_the_offset_of_the_first(scene)
    a = scene.member(enable_auto_commit=False)
    a.assign(PARTITIONS[:2])
    assert scene.read(a, 2) == [1, 5]  # records of the other partition arrive immediately
    assert scene.world.now < 5
    assert "not reading t-0: its committed offset" in str(a.explain())
    while scene.world.now < 80:  # longer than one lookup of committed offsets
        assert a.poll(1.0) == []
    said = [r.getMessage() for r in caplog.records if "its committed offset" in r.getMessage()]
    assert len(said) == 1
    assert "UNSTABLE_OFFSET_COMMIT" in said[0]
    assert "transaction.timeout.ms" in said[0]
    # The transaction has timed out.
    assert scene.read(a, 2) == [0, 4]
    assert "its committed offset" not in str(a.explain())
    for client in (a, producer):
        client.close(0)


@pytest.mark.parametrize("how", ["seek", "assign"])
def test_a_committed_offset_that_is_no_longer_needed_is_not_requested_again(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Seek, or assign other partitions, so that the committed offset isn't needed any more.

    Otherwise the client would request it for a minute, and warn about a partition that is read.
    """
    scene = Scene()
    scene.write(range(80))
    producer = hangs_with_the_offset_of_the_first(scene)
    asked: Counter[str] = Counter()
    scene.cluster.observers.append(
        lambda broker, host, request: asked.update([type(request.body).__name__])
    )
    a = scene.member(enable_auto_commit=False)
    a.assign(PARTITIONS[:1])
    assert a.poll(1.0) == []
    assert any("OffsetFetch" in name for name in asked)
    asked.clear()
    if how == "seek":
        a.seek(PARTITIONS[0], 0)
    else:
        a.assign(PARTITIONS[1:2])
    assert a.poll(1.0)
    while scene.world.now < 75:
        a.poll(1.0)
    others = 1 if how == "assign" else 0  # the other partition needs one lookup
    assert sum(n for name, n in asked.items() if "OffsetFetch" in name) <= 1 + others, asked
    assert "its committed offset" not in str(a.explain())
    assert "its committed offset" not in caplog.text
    for client in (a, producer):
        client.close(0)


@PROTOCOLS
def test_a_new_owner_waits_for_the_open_transaction_of_the_former_owner(protocol: str) -> None:
    """The new owner waits with any isolation.level (KIP-447), even without transactional topics."""
    scene = Scene(protocol)
    scene.write(range(8))
    config = {"enable_auto_commit": False, "max_poll_interval_ms": 10_000}
    a = scene.subscribed("a", **config)
    producer = scene.transactional("producer of a")
    assert scene.read(a, 8) == list(range(8))
    producer.begin_transaction()
    ends = {p: a.position(p) for p in PARTITIONS}
    producer.send_offsets_to_transaction(ends, a.group_metadata())
    scene.world.advance(12.0)  # the application stalls, and its group continues without it
    b = scene.subscribed("b", **config)
    while len(b.assignment()) < 4:
        assert b.poll(0.5) == []
    producer.commit_transaction()  # no other member has read on meanwhile
    for _ in range(20):
        assert b.poll(0.5) == []
    assert {p: b.position(p) for p in PARTITIONS} == ends
    for client in (a, b, producer):
        client.close()


@PROTOCOLS
def test_a_revocation_waits_for_a_commit_that_was_requested_just_before_it(protocol: str) -> None:
    """The engine handles the commit after the revocation has begun, and once refused it."""
    scene, a = read_by_hand(protocol)
    engine, group = a._engine, a._engine.group
    assert group is not None
    a.poll(0.1)
    with engine.lock:
        commit = group.commits.commit(group.commits.asked(None, read=False), scene.world.now + 30)
        group._listeners = group._listeners._replace(on_revoked=None)
        given_back = engine.start(group.revoke(PARTITIONS[:2]))
        committed = engine.start(commit)
    a._host.wake()
    a.poll(2.0)
    given_back.result()
    assert {*committed.result()} == {*PARTITIONS}
    assert scene.committed() == [10] * 4


@PROTOCOLS
def test_a_commit_without_arguments_excludes_revoked_partitions(
    protocol: str,
) -> None:
    scene, a = read_by_hand(protocol)
    engine, group = a._engine, a._engine.group
    assert group is not None
    a.poll(0.1)
    group._listeners = group._listeners._replace(on_revoked=None)
    for broker in scene.cluster.brokers.values():
        broker.delays[OffsetCommitRequest.API_KEY] = 1.0
    a.commit_async()
    given_back = engine.start(group.revoke(PARTITIONS[:2]))
    a._host.wake()
    a.poll(0.2)
    assert not given_back.done
    assert {*a.commit()} == {*PARTITIONS[2:]}
    given_back.result()
    assert scene.committed() == [10] * 4
