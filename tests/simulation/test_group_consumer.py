"""The consumer's side of groups, in virtual time and both protocols: callbacks, commits, ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.errors import CommitFailedError, ConfigurationError, IllegalStateError
from odradek.common.kafka_errors import FencedInstanceIdError, UnreleasedInstanceIdError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

pytestmark = pytest.mark.simulation

PARTITIONS = [TopicPartition("t", p) for p in range(4)]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


class Scene:
    """A cluster with topic t, and members of one group."""

    def __init__(self, protocol: str = "classic", seed: int = 1) -> None:
        self.protocol = protocol
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.create_topic("t", partitions=4)
        self.log: list[str] = []

    def member(self, name: str = "a", **config: Any) -> Consumer:
        given = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "group.id": "g",
            "group.protocol": self.protocol,
            **{k.replace("_", "."): v for k, v in config.items()},
        }
        return Consumer(given, _host=self.world.host(name))

    def subscribed(self, name: str = "a", **config: Any) -> Consumer:
        found = self.member(name, **config)
        found.subscribe(["t"], **self.callbacks(name))
        return found

    def callbacks(self, name: str) -> dict[str, Any]:
        def note(what: str) -> Any:
            def callback(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                numbers = " ".join(str(p.partition) for p in sorted(partitions))
                self.log.append(f"{name} {what} {numbers}".strip())

            return callback

        return {f"on_{what}": note(what) for what in ("assigned", "revoked", "lost")}

    def write(self, numbers: range, topic: str = "t") -> None:
        config = {"bootstrap.servers": self.cluster.bootstrap_servers}
        with Producer(config, _host=self.world.host("producer")) as producer:
            for n in numbers:
                producer.send(topic, b"%d" % n, partition=n % 4)
            producer.flush(timeout=60)

    def read(self, consumer: Consumer, count: int, most: int = 500) -> list[int]:
        values: list[int] = []
        end = self.world.now + 30
        while len(values) < count:
            values += [int(r.value or b"") for r in consumer.poll(1.0, most)]
            assert self.world.now < end, f"{len(values)} of {count}\n{consumer.explain()}"
        return sorted(values)

    def committed(self) -> list[int | None]:
        """What the group has, asked by a client that isn't a member."""
        with self.member("observer", enable_auto_commit=False) as observer:
            found = observer.committed(PARTITIONS)
        return [None if o is None else o.offset for o in found.values()]


@PROTOCOLS
def test_a_group_of_one_reads_all_and_leaves_what_it_read(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    started = scene.world.now
    with scene.subscribed() as a:
        assert a.subscription() == {"t"}
        assert scene.read(a, 40) == list(range(40))
        assert scene.world.now - started < 1.5
        who = a.group_metadata()
        assert (who.group_id, who.group_instance_id) == ("g", None)
        assert who.generation_id > 0
        assert who.member_id
        assert sorted(a.assignment()) == PARTITIONS
    assert scene.log == ["a assigned 0 1 2 3", "a revoked 0 1 2 3"]
    assert scene.committed() == [10, 10, 10, 10]
    scene.write(range(40, 44))
    with scene.subscribed("b") as b:
        assert scene.read(b, 4) == list(range(40, 44))


@PROTOCOLS
def test_what_stays_goes_on_and_what_goes_is_committed_before_the_other_reads(
    protocol: str,
) -> None:
    scene = Scene(protocol)
    config = COOPERATIVE if protocol == "classic" else {}
    scene.write(range(400))
    a = scene.subscribed("a", **config)
    b: Consumer | None = None
    got: dict[int, list[int]] = {p: [] for p in range(4)}
    end = scene.world.now + 60
    while (b is None or len(b.assignment()) < 2) and scene.world.now < end:
        for r in a.poll(0.05, 7):
            got[r.partition].append(r.offset)
        if b is None and len(a.assignment()) == 4:
            b = scene.subscribed("b", **config)
        elif b is not None:
            assert b.poll(0.05, 1) == [] or b.assignment()
    assert b is not None
    assert len(a.assignment()) == len(b.assignment()) == 2
    # Nothing is left out or read twice of what stays, nor of what the other goes on with.
    for offsets in got.values():
        assert offsets == list(range(len(offsets)))
    for tp in b.assignment():
        assert b.committed([tp])[tp] == OffsetAndMetadata(len(got[tp.partition]), "", 0)
    revoked = next(line for line in scene.log if line.startswith("a revoked"))
    assert sorted(int(n) for n in revoked.split()[2:]) == [p.partition for p in b.assignment()]
    assert "a lost" not in " ".join(scene.log)
    b.close()
    a.close()


@PROTOCOLS
def test_a_callback_may_use_the_consumer(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    seen: list[Any] = []

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seen.append([consumer.position(p) for p in sorted(partitions)])
        for p in partitions:
            consumer.seek(p, 8)
        consumer.pause(PARTITIONS[:1])
        seen.append(consumer.committed(PARTITIONS[:1]))
        seen.append(sorted(consumer.assignment()))
        with pytest.raises(IllegalStateError, match=r"poll\(\) can't be called inside on_assigned"):
            consumer.poll(0)
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.unsubscribe()

    def on_revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seen.append(consumer.commit({PARTITIONS[3]: OffsetAndMetadata(9, "mine")}))

    a = scene.member(enable_auto_commit=False)
    a.subscribe(["t"], on_assigned=on_assigned, on_revoked=on_revoked)
    assert scene.read(a, 6) == [n for n in range(32, 40) if n % 4]
    a.close()
    assert seen == [
        [0, 0, 0, 0],
        {PARTITIONS[0]: None},
        PARTITIONS,
        {PARTITIONS[3]: OffsetAndMetadata(9, "mine")},
    ]
    assert scene.committed() == [None, None, None, 9]


@PROTOCOLS
def test_what_a_callback_raises_comes_out_of_poll_and_the_group_goes_on(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError("mine")

    a = scene.member()
    a.subscribe(["t"], on_assigned=on_assigned)
    with pytest.raises(ZeroDivisionError, match="mine"):
        scene.read(a, 40)
    assert scene.read(a, 40) == list(range(40))
    a.close()


def test_a_listener_of_kafka_pythons_shape() -> None:
    scene = Scene()
    scene.write(range(4))

    class Listener:
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            scene.log.append(f"assigned {len(assigned)}")

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            scene.log.append(f"revoked {len(revoked)}")

    a = scene.member()
    with pytest.raises(IllegalStateError, match="a listener or callbacks"):
        a.subscribe(["t"], listener=Listener(), on_lost=lambda _, __: None)
    a.subscribe("t", listener=Listener())
    scene.read(a, 4)
    a.close()
    assert scene.log == ["assigned 4", "revoked 4"]


# Commits


def test_a_for_loop_over_the_consumer_is_a_loop_over_its_records() -> None:
    scene = Scene()
    scene.write(range(8))
    a = scene.subscribed()
    found = []
    for record in a:
        found.append(int(record.value or b""))
        if len(found) == 8:
            break
    assert sorted(found) == list(range(8))
    a.close()


def one_partition(scene: Scene, **config: Any) -> Consumer:
    found = scene.member(**config)
    found.assign(PARTITIONS[:1])
    return found


def test_the_record_in_the_hands_of_a_loop_is_committed_with_the_next_one() -> None:
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed(auto_commit_interval_ms=1000)
    for n, _ in enumerate(itertools.islice(a.records(), 13), 1):
        scene.world.advance(2.5)
        assert sum(o or 0 for o in scene.committed()) == n - 1
    a.close()
    assert sum(o or 0 for o in scene.committed()) == 13


@pytest.mark.parametrize("way", ["poll", "poll_arrow", "batches"])
def test_what_was_handed_out_is_committed_when_more_is_asked_for(way: str) -> None:
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
    assert scene.committed()[0] == 0  # where it began
    scene.write(range(40, 44))
    assert len(ask()) == 1
    scene.world.advance(5)
    assert scene.committed()[0] == 10
    a.close()
    assert scene.committed()[0] == 11


def test_a_with_block_that_is_left_by_an_error_does_not_commit_what_was_in_hand() -> None:
    scene = Scene()
    scene.write(range(40))
    with pytest.raises(ZeroDivisionError), scene.subscribed() as a:
        for n, _ in enumerate(a.records()):
            if n == 25:
                raise ZeroDivisionError
    assert sum(o or 0 for o in scene.committed()) == 25


@PROTOCOLS
def test_unsubscribe_commits_gives_back_and_another_subscription_follows(protocol: str) -> None:
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
    with pytest.raises(IllegalStateError, match="exclude each other"):
        a.subscribe(["t"])
    assert a.position(PARTITIONS[0]) == 10
    a.unsubscribe()
    a.subscribe(["t"])
    scene.write(range(40, 44))
    assert scene.read(a, 4) == list(range(40, 44))
    with pytest.raises(IllegalStateError, match="exclude each other"):
        a.assign(PARTITIONS)
    a.close()


def test_the_ways_to_say_what_is_committed() -> None:
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
        a.commit("t")  # type: ignore[arg-type]
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
def test_a_commit_beside_members_is_refused_and_says_what_to_do(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 40)
    stranger = one_partition(scene)
    with pytest.raises(CommitFailedError, match="this consumer isn't one of them"):
        stranger.commit({PARTITIONS[0]: 1})
    stranger.close()
    a.close()


@PROTOCOLS
def test_an_application_that_does_not_poll_loses_its_partitions_and_is_told(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(max_poll_interval_ms=10_000, auto_commit_interval_ms=600_000)
    scene.read(a, 40)
    scene.world.advance(15)
    with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
        a.commit({PARTITIONS[0]: 10})
    b = scene.subscribed("b")
    assert scene.read(b, 40) == list(range(40))  # a was given 15 s, and committed nothing
    b.close()
    a.poll(1.0)
    assert scene.log[:3] == ["a assigned 0 1 2 3", "b assigned 0 1 2 3", "b revoked 0 1 2 3"]
    assert scene.log[3] == "a lost 0 1 2 3"
    a.poll(10.0)
    assert scene.log[4] == "a assigned 0 1 2 3"
    a.close()


# Patterns and topics


@PROTOCOLS
def test_a_pattern_finds_topics_that_come_later(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("orders-eu", partitions=2)
    a = scene.member(metadata_max_age_ms=5000)
    a.subscribe(pattern="orders-.*", **scene.callbacks("a"))
    a.poll(3.0)
    if protocol == "classic":
        assert a.subscription() == {"orders-eu"}
    scene.cluster.create_topic("orders-us", partitions=1)
    scene.cluster.create_topic("my-orders-us", partitions=1)
    a.poll(15.0)
    assert {tp.topic for tp in a.assignment()} == {"orders-eu", "orders-us"}
    a.close()


@PROTOCOLS
def test_a_subscribed_topic_that_comes_later_is_read_soon(protocol: str) -> None:
    scene = Scene(protocol)
    a = scene.member()
    a.subscribe(["later", "t"])
    a.poll(2.0)
    assert sorted(a.assignment()) == PARTITIONS
    scene.cluster.create_topic("later", partitions=4)
    scene.write(range(4), "later")
    assert scene.read(a, 4) == list(range(4))
    a.close()


@PROTOCOLS
def test_another_subscription_takes_the_place_of_the_first(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("u", partitions=1)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 20, most=20)
    a.subscribe(["u"], **scene.callbacks("a2"))
    assert a.poll(10.0) == []
    assert a.assignment() == [TopicPartition("u", 0)]
    assert scene.log == ["a assigned 0 1 2 3", "a2 revoked 0 1 2 3", "a2 assigned 0"]
    assert sum(o or 0 for o in scene.committed()) == 20
    a.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs topics or a pattern"),
        ({"topics": ["t"], "pattern": "x"}, "not both"),
        ({"pattern": "("}, r"pattern '\('"),
        ({"pattern": ""}, "is empty"),
    ],
)
def test_what_is_no_subscription(given: dict[str, Any], says: str) -> None:
    scene = Scene()
    a = scene.member()
    with pytest.raises(ConfigurationError, match=says):
        a.subscribe(**given)
    with pytest.raises(IllegalStateError, match="nothing to read"):
        a.poll(0)
    a.close()


# Coordinators that fail


@PROTOCOLS
def test_the_coordinators_crash_costs_no_partition_and_no_record(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 40)
    broker = a._engine.group.coordinator.broker  # type: ignore[union-attr]
    assert broker is not None
    scene.cluster.crash(broker)
    scene.write(range(40, 80))
    assert scene.read(a, 40) == list(range(40, 80))
    a.commit(timeout=60)
    assert scene.committed() == [20, 20, 20, 20]
    assert scene.log == ["a assigned 0 1 2 3"]
    a.close()


def test_who_was_never_told_of_a_partition_is_not_told_that_it_goes() -> None:
    scene = Scene()
    a = scene.subscribed()
    scene.world.advance(3)
    assert sorted(a.assignment()) == PARTITIONS
    a.close()
    assert scene.log == []


@PROTOCOLS
def test_a_static_member_that_is_fenced_is_told_at_every_poll(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(group_instance_id="one")
    scene.read(a, 40)
    b = scene.subscribed("b", group_instance_id="one")
    # With KIP-848 the second one waits for the place of the first.
    scene.world.advance(10 if protocol == "classic" else 70)
    fenced = a if protocol == "classic" else b
    for _ in range(2):
        with pytest.raises((FencedInstanceIdError, UnreleasedInstanceIdError)):
            fenced.poll(5.0)
    fenced.close()
    (b if fenced is a else a).close()


@PROTOCOLS
def test_explain_says_where_the_membership_stands(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    a = scene.member()
    picture = a.explain().group
    assert picture is not None
    assert (picture.state, picture.generation, picture.last_poll) == (None, -1, None)
    assert "no member, commits only" in str(a.explain())
    a.subscribe(["t"], **scene.callbacks("a"))
    scene.world.advance(2)
    assert "a callback waits for poll()" in str(a.explain())
    scene.read(a, 8)
    scene.world.advance(3)
    picture = a.explain().group
    assert picture is not None
    assert picture.member_id == a.group_metadata().member_id
    text = str(picture)
    assert text.startswith(f"group g ({protocol}): stable, generation {picture.generation}, member")
    assert f"4 partitions of t; coordinator: broker {picture.coordinator}; last poll() 3.0" in text
    assert a.explain().to_dict()["group"]["assigned"] == 4
    a.close()
