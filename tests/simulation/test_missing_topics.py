"""R-IN-6: a client that waits for a missing topic or partition logs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors.kafka import InvalidTopicExceptionError, UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.world.environment import ReceivedRequest

TYPO = "Flihgts"


class Scene(Stage):
    """A cluster with topic `flights`, of three partitions; counts the requests of clients."""

    def __init__(self, **cluster: Any) -> None:
        super().__init__(partitions=0, **cluster)
        self.cluster.create_topic("flights", partitions=3)
        self.cluster.create_topic("counts")
        self.lists = 0
        self.cluster.observers.append(self.look)

    def look(self, broker: SimulatedBroker, host: str, request: ReceivedRequest) -> None:
        if isinstance(request.body, MetadataRequest) and request.body.topics is None:
            self.lists += 1


def polls(consumer: Consumer) -> None:
    for _ in range(12):
        assert consumer.poll(1.0) == []


def send(scene: Scene) -> Any:
    client = scene.producer(max_block_ms=12_000)
    with pytest.raises(KafkaTimeoutError, match=r"did you mean flights\?"):
        client.send(TYPO, b"x").result(20)
    return client


def partitions_for(scene: Scene) -> Any:
    client = scene.producer()
    with pytest.raises(KafkaTimeoutError, match=r"did you mean flights\?"):
        client.partitions_for(TYPO, timeout=12)
    return client


def assign(scene: Scene) -> Any:
    client = scene.consumer()
    client.assign([TopicPartition(TYPO, 0)])
    polls(client)
    return client


def subscribe(protocol: str) -> Callable[[Scene], Any]:
    def how(scene: Scene) -> Any:
        client = scene.consumer(group_id="g", group_protocol=protocol)
        client.subscribe([TYPO])
        polls(client)
        return client

    return how


def begin(scene: Scene) -> Any:
    client = scene.producer(transactional_id="x", max_block_ms=12_000)
    client.init_transactions()
    client.begin_transaction()
    with pytest.raises(KafkaTimeoutError):
        client.send(TYPO, b"x").result(20)
    return client


USES: dict[str, Callable[[Scene], Any]] = {
    "send": send,
    "send in a transaction": begin,
    "partitions_for": partitions_for,
    "assign": assign,
    "subscribe, classic": subscribe("classic"),
    "subscribe, consumer": subscribe("consumer"),
}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        r.getMessage()
        for r in caplog.records
        if r.levelno == logging.WARNING and "] topic " in r.getMessage()
    ]


def found(scene: Scene, client: Any) -> None:
    """Assert that the client notices within a minute that no topic is missing any more."""
    end = scene.world.now + 60
    while client.explain().missing and scene.world.now < end:
        if isinstance(client, Consumer):
            client.poll(1.0)
        else:
            client.partitions_for(client.explain().missing[0].topic, timeout=5)
    assert client.explain().missing == ()
    assert "still doesn't exist" not in str(client.explain())


@pytest.mark.parametrize("use", USES)
def test_a_missing_topic_is_logged_once_with_a_remedy(
    use: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    client = USES[use](scene)
    (line,) = told(caplog)
    assert f"topic {TYPO} still doesn't exist after " in line
    assert "did you mean flights?" in line
    made = f"odradek topics create {TYPO} --bootstrap-server {scene.cluster.bootstrap_servers}"
    assert line.endswith(made)
    assert scene.lists == 1
    picture = client.explain()
    assert [(m.topic, m.partition, m.near) for m in picture.missing] == [(TYPO, None, ("flights",))]
    assert f"But topic {TYPO} still doesn't exist after " in picture.diagnosis
    assert not scene.world.hot_loops
    scene.cluster.create_topic(TYPO)
    found(scene, client)
    assert len(told(caplog)) == 1
    client.close(0)


def a_send(scene: Scene) -> Any:
    client = scene.producer(max_block_ms=12_000)
    with pytest.raises(KafkaTimeoutError, match="partitions 0 to 2"):
        client.send("flights", b"x", partition=7).result(20)
    return client


def an_assignment(scene: Scene) -> Any:
    client = scene.consumer()
    client.assign([TopicPartition("flights", 7)])
    polls(client)
    return client


@pytest.mark.parametrize(
    ("topic", "partition", "problem"),
    [
        (TYPO, None, f"topic {TYPO} still doesn't exist after 4 s (did you mean flights?)"),
        ("flights", 7, "topic flights still has no partition 7 after 4 s"),
    ],
)
def test_a_missing_topic_is_logged_within_five_seconds_in_a_with_block(
    caplog: pytest.LogCaptureFixture, topic: str, partition: int | None, problem: str
) -> None:
    scene = Scene()
    said_at: list[float] = []
    seen = logging.Handler(logging.WARNING)
    seen.emit = lambda record: said_at.append(scene.world.now)  # type: ignore[method-assign]
    logging.getLogger("odradek").addHandler(seen)
    try:
        with pytest.raises(KafkaTimeoutError), scene.producer(close_timeout_ms=30_000) as producer:
            producer.partitions_for("flights")
            began = scene.world.now
            producer.send(topic, b"x", partition=partition)
    finally:
        logging.getLogger("odradek").removeHandler(seen)
    (line,) = told(caplog)
    assert problem in line
    assert said_at[0] - began <= 5.1


@pytest.mark.parametrize("use", [a_send, an_assignment])
def test_a_missing_partition_is_logged_once(
    use: Callable[[Scene], Any], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    client = use(scene)
    (line,) = told(caplog)
    assert "topic flights still has no partition 7" in line
    assert "its partitions are 0 to 2" in line
    assert scene.lists == 0
    assert [str(m)[:35] for m in client.explain().missing] == [
        "partition 7 of topic flights still "
    ]
    scene.cluster.add_partitions("flights", 8)
    if isinstance(client, Producer):
        client.send("flights", b"x", partition=7).result(5)
    found(scene, client)
    client.close(0)


def test_a_topic_that_is_created_soon_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.world.after(3.0, lambda: scene.cluster.create_topic("soon"))
    client = scene.producer()
    assert client.send("soon", b"x").result(10).offset == 0
    scene.world.advance(20)
    assert told(caplog) == []
    assert scene.lists == 0
    client.close()


def test_similar_names_are_left_out_if_no_broker_lists_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The cluster dies during the wait: the warning doesn't wait forever for the list."""
    scene = Scene()
    for number in scene.cluster.brokers:
        scene.world.after(3.5, partial(scene.cluster.crash, number))
    client = scene.consumer()
    client.assign([TopicPartition(TYPO, 0)])
    for _ in range(20):
        client.poll(1.0)
    (line,) = told(caplog)
    assert "did you mean" not in line
    client.close(0)


def test_topics_are_created_by_producers_and_by_consumers_with_auto_create() -> None:
    """KIP-361 adds the consumer's option `allow.auto.create.topics`."""
    scene = Scene(auto_create=True)
    producer = scene.producer()
    assert producer.send("new", b"x").result(10).offset == 0
    with pytest.raises(InvalidTopicExceptionError, match="not a topic"):
        producer.send("not a topic", b"x").result(10)
    consumer = scene.consumer(allow_auto_create_topics=True)
    consumer.assign([TopicPartition("read", 0)])
    polls(consumer)
    assert {"new", "read"} <= scene.cluster.topics.keys()
    for client in (producer, consumer):
        client.close()


@pytest.mark.parametrize("use", ["assign", "subscribe, classic", "subscribe, consumer"])
def test_a_consumer_logs_a_missing_topic_without_creating_it(
    use: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By default consumers create no topic; poll() doesn't raise, as it may be created later."""
    scene = Scene(auto_create=True)
    consumer = USES[use](scene)
    assert TYPO not in scene.cluster.topics
    (line,) = told(caplog)
    assert f"topic {TYPO} still doesn't exist after 4 s (did you mean flights?). Create it" in line
    health = consumer.health()
    assert (health.ok, health.reason) == (
        True,
        f"topic {TYPO} doesn't exist (did you mean flights?)",
    )
    assert f"odradek topics create {TYPO} " in health.cure
    assert f"But topic {TYPO} still doesn't exist" in consumer.explain().diagnosis
    consumer.close(0)


def test_a_broker_before_metadata_version_4_creates_topics_for_consumers() -> None:
    """Before version 4 a Metadata request can't forbid the creation."""
    scene = Scene(auto_create=True, versions={MetadataRequest.API_KEY: (0, 3)})
    consumer = scene.consumer()
    consumer.assign([TopicPartition("flights", 0), TopicPartition("new", 0)])
    polls(consumer)
    assert "new" in scene.cluster.topics
    assert consumer.position(TopicPartition("flights", 0), 5) == 0
    consumer.close(0)


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_admin_clients_and_clients_without_auto_create_create_no_topics(kind: Any) -> None:
    scene = Scene(auto_create=True)
    off: dict[str, Any] = {"allow.auto.create.topics": "false"} if kind is Producer else {}
    client: Any = scene.client(kind, **off)
    if isinstance(client, Producer):
        with pytest.raises(KafkaTimeoutError):
            client.partitions_for("new", timeout=2)
    elif isinstance(client, Consumer):
        client.assign([TopicPartition("new", 0)])
        polls(client)
    else:
        with pytest.raises(UnknownTopicOrPartitionError):
            client.describe_topics(["new"], timeout=2)
    assert "new" not in scene.cluster.topics
    client.close(0)


def test_a_call_that_has_ended_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A call with a timeout may only check whether a topic exists."""
    scene = Scene()
    client = scene.producer()
    for name in ("probe", "another"):
        with pytest.raises(KafkaTimeoutError):
            client.partitions_for(name, timeout=1)
    scene.world.advance(200)
    assert client.partitions_for("flights", timeout=5)
    scene.world.advance(200)
    assert told(caplog) == []
    assert scene.lists == 0
    client.close()


def test_missing_names_that_are_no_longer_requested_are_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A faulty partitioner may return many missing partitions, which must not be kept forever."""
    scene = Scene()
    client = scene.producer(max_block_ms=500)
    for number in range(10, 30):
        with pytest.raises(KafkaTimeoutError):
            client.send("flights", b"x", partition=number).result(5)
    scene.world.advance(400)
    with pytest.raises(KafkaTimeoutError):
        client.send("flights", b"x", partition=99).result(5)
    assert [m.partition for m in client.explain().missing] == [99]
    assert told(caplog) == []
    client.close()


def test_explain_reports_a_group_error_beside_a_missing_topic() -> None:
    """The topic's name is a letter that occurs in other texts."""
    scene = Scene()
    client = scene.consumer(group_id="g")
    client.subscribe(["a"])
    for broker in scene.cluster.brokers.values():
        broker.injections.append(Injection("JoinGroup", 15, 1000))  # COORDINATOR_NOT_AVAILABLE
    polls(client)
    assert "But the group" in client.explain().diagnosis
    assert "But topic a still doesn't exist" in client.explain().diagnosis
    client.close(0)


def test_the_error_of_partitions_for_suggests_similar_names() -> None:
    scene = Scene()
    with scene.consumer() as consumer:
        with pytest.raises(
            UnknownTopicOrPartitionError, match=r"did you mean flights\?\)\. Create"
        ):
            consumer.partitions_for(TYPO, timeout=5.0)
        assert len(consumer.partitions_for("flights", timeout=5.0)) == 3
    assert scene.lists == 1


@pytest.mark.parametrize(
    ("pattern", "meant", "topic"),
    [
        ("^fli", "'fli.*', which matches flights", "fli"),
        ("FLI.*", "'(?i)FLI.*', which matches flights", "FLIES"),
        ("light", "'.*light.*', which matches flights", "light"),
        ("zzz.*", None, "zzz"),
        ("(f|g)li", None, "fli"),
    ],
)
def test_a_pattern_without_a_match_is_logged_once(
    pattern: str,
    meant: str | None,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    consumer = scene.consumer(group_id="g", metadata_max_age_ms=20_000)
    consumer.subscribe(pattern=pattern)
    for _ in range(40):
        assert consumer.poll(1.0) == []
    (text,) = [r.getMessage() for r in caplog.records if "pattern" in r.getMessage()]
    assert f"group g: no topic matches pattern {pattern!r}" in text
    assert "(waited 4 s)" in text
    assert "odradek topics list --bootstrap-server " in text
    assert ("did you mean" in text) == (meant is not None)
    assert meant is None or meant in text
    health = consumer.health()
    assert health.ok
    assert f"no topic matches pattern {pattern!r}" in (health.reason or "")
    assert health.cure is not None
    assert health.cure in text
    assert f"But {health.reason}." in consumer.explain().diagnosis
    scene.cluster.create_topic(topic)
    while not consumer.assignment():
        consumer.poll(1.0)
    assert consumer.health().reason is None
    assert "pattern" not in consumer.explain().diagnosis


@PROTOCOLS
def test_a_pattern_with_a_match_is_not_logged(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    members = [scene.consumer(name=n, group_id="g", group_protocol=protocol) for n in "abcd"]
    for member in members:  # more members than partitions
        member.subscribe(pattern="flig.*")
    for _ in range(10):
        for member in members:
            member.poll(1.0)
    assert not [r for r in caplog.records if "matches pattern" in r.getMessage()]
    assert all(m.health().reason is None for m in members)


def test_no_alternative_to_a_slow_pattern_is_searched_for() -> None:
    """`re` would backtrack for years to see that a variant of the pattern matches no topic."""
    scene = Scene()
    scene.cluster.create_topic("customerordersserviceinternalevents" * 2)
    with scene.consumer(group_id="g") as consumer:
        consumer.subscribe(pattern="order([a-z]+[.-]?)+_dlq")
        for _ in range(6):
            assert consumer.poll(1.0) == []
        assert "no topic matches pattern" in (consumer.health().reason or "")


def test_a_pattern_is_logged_once_although_matching_topics_appear_and_disappear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    with scene.consumer(group_id="g", metadata_max_age_ms=500) as consumer:
        consumer.subscribe(pattern="new")
        consumer.poll(1.0)
        scene.cluster.create_topic("new")
        consumer.poll(1.2)
        scene.cluster.delete_topic("new")
        for _ in range(8):
            consumer.poll(1.0)
    told = [r.getMessage() for r in caplog.records if "matches pattern" in r.getMessage()]
    assert len(told) == 1
    assert "(waited 4 s)" in told[0]
