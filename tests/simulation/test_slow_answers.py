"""A slow broker isn't dead (R-RB-9): one API takes seconds, everything else is fast.

The first response is used, however late it arrives. At most one further request is sent, to another
broker; there is no rebootstrap, and the waiting connection isn't closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.volume import pairs

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.network.connection import Connection
from odradek.network.in_flight_requests import InFlightRequest
from odradek.network.network_client import NetworkClient
from odradek.protocol.api_keys import API_NAMES

P0 = TopicPartition("t", 0)
KEYS = {name: key for key, name in API_NAMES.items()}
AT_ONCE = 1.0
"""Allowed seconds for all but the slow responses, including backoffs of connections."""


class Scene(Stage):
    """A cluster with a topic and some records; all APIs are fast until `slow` is called."""

    def __init__(self, brokers: int, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(7, brokers)
        self.api = api
        self.begun = 0.0
        self.sent: Counter[str] = Counter()
        self.events: list[Event] = []
        whole = NetworkClient._transmit

        def counted(
            network: NetworkClient, connection: Connection, request: InFlightRequest, now: float
        ) -> None:
            self.sent[type(request.body).API_NAME] += 1
            whole(network, connection, request, now)

        monkeypatch.setattr(NetworkClient, "_transmit", counted)
        self.write(range(30))

    def client(self, kind: type[Any], name: str = "", **config: Any) -> Any:
        made = super().client(kind, name, **config)
        made._engine.events.listen(self.events.append)
        return made

    def consumer(self, **config: Any) -> Consumer:
        return super().consumer(**{"group_id": "g", "enable_auto_commit": False, **config})

    def member(self, **config: Any) -> Consumer:
        """Create a member that has joined and read a record."""
        made = self.consumer(**config)
        made.subscribe(["t"])
        assert made.poll(20.0)
        return made

    def producer(self, **config: Any) -> Producer:
        return super().producer(**{"transactional_id": "x", **config})

    def slow(self, seconds: float) -> None:
        for broker in self.cluster.brokers.values():
            broker.delays[KEYS[self.api]] = seconds
        self.sent.clear()
        self.events.clear()

    def check(self, call: Callable[[], object], seconds: float, questions: int = 1) -> None:
        """Check that the call succeeds with the first response and no broker counts as failed."""
        self.slow(seconds)
        self.begun = self.world.now
        call()
        took = self.world.now - self.begun
        assert 0 < self.sent[self.api] <= 2 * questions, self.sent
        assert seconds <= took <= seconds * questions + AT_ONCE, took
        self.unhurt()

    def unhurt(self) -> None:
        """Check that no rebootstrap, failed attempt or close of a connection in use happened."""
        kinds = ("rebootstrap", "rebootstrapped", "dial_failed", "broken")
        assert not [str(e) for e in self.events if e.kind in kinds]
        front_door = self.cluster.bootstrap_servers  # its unused connection may be closed
        ends = [e for e in self.events if e.kind == "disconnected"]
        ends = [e for e in ends if e.fields["failure"] or e.fields["address"] != front_door]
        assert not [str(e) for e in ends if e.fields["failure"] or e.fields["in_flight"]]


def _list_offsets(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    consumer.partitions_for("t")
    return lambda: consumer.end_offsets([P0])


def _first_list_offsets(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    consumer.assign([P0])
    return lambda: _polled(consumer)


def _fetch(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    consumer.assign([P0])
    assert consumer.position(P0, 20.0) == 0
    assert consumer.poll(10.0)
    with s.client(Producer) as producer:
        producer.send("t", b"new", partition=0).result(10.0)
    consumer.seek(P0, 0)
    return lambda: _polled(consumer)


def _polled(consumer: Consumer) -> None:
    assert consumer.poll(59.0)


def _commit(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    consumer.committed([P0])
    return lambda: consumer.commit({P0: OffsetAndMetadata(3)})


def _member_commits(s: Scene) -> Callable[[], object]:
    consumer = s.member()
    return lambda: consumer.commit()


def _committed(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    consumer.partitions_for("t")
    consumer.commit({P0: OffsetAndMetadata(3)})

    def asked() -> None:
        found = consumer.committed([P0])[P0]
        assert found is not None
        assert found.offset == 3

    return asked


def _find(s: Scene) -> Callable[[], object]:
    s.consumer().committed([P0])  # no group has a coordinator before the first lookup
    consumer = s.consumer()
    consumer.partitions_for("t")
    return lambda: consumer.committed([P0])


def _metadata(s: Scene) -> Callable[[], object]:
    admin = s.client(Admin)
    admin.describe_cluster()
    return lambda: admin.describe_topics(["t"])


def _first_metadata(s: Scene) -> Callable[[], object]:
    consumer = s.consumer()
    return lambda: consumer.partitions_for("t")


def _new_topic(s: Scene) -> Callable[[], object]:
    producer = s.client(Producer)
    producer.send("t", b"1", partition=0).result(10.0)
    s.cluster.create_topic("u", partitions=1)
    return lambda: producer.partitions_for("u")


def _cluster(s: Scene) -> Callable[[], object]:
    admin = s.client(Admin)
    admin.list_topics()
    return lambda: admin.describe_cluster()


def _create(s: Scene) -> Callable[[], object]:
    admin = s.client(Admin)
    admin.list_topics()
    return lambda: admin.create_topics([NewTopic("u", 1, 1)])


def _delete(s: Scene) -> Callable[[], object]:
    admin = s.client(Admin)
    admin.list_topics()
    return lambda: admin.delete_topics(["t"])


def _join(s: Scene) -> Callable[[], object]:
    consumer = s.consumer(session_timeout_ms=45_000)
    consumer.subscribe(["t"])
    return lambda: _polled(consumer)


def _leave(s: Scene) -> Callable[[], object]:
    consumer = s.member()
    return lambda: consumer.close(50.0)


def _beat(s: Scene) -> Callable[[], object]:
    consumer = s.member()
    return lambda: _stays(s, consumer)


def _consumer_beat(s: Scene) -> Callable[[], object]:
    consumer = s.member(group_protocol="consumer")
    return lambda: _stays(s, consumer)


def _stays(s: Scene, consumer: Consumer) -> None:
    """Keep the API slow until the first response has arrived."""
    seconds = s.cluster.brokers[1].delays[KEYS[s.api]]
    begun = s.world.now
    while not s.sent[s.api]:
        consumer.poll(0.1)
    asked = s.world.now
    while s.world.now < asked + seconds + 0.5:
        consumer.poll(0.1)
    assert len(consumer.assignment()) == 3
    assert not [str(e) for e in s.events if e.kind == "group"]
    s.begun += asked - begun


def _producer_id(s: Scene) -> Callable[[], object]:
    producer = s.producer()
    producer.partitions_for("t")
    return lambda: producer.init_transactions()


def _idempotent_id(s: Scene) -> Callable[[], object]:
    producer = s.client(Producer)
    producer.partitions_for("t")
    return lambda: producer.send("t", b"1", partition=0).result(60.0)


def _transaction(s: Scene) -> Callable[[], object]:
    producer = s.producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", partition=0).result(10.0)
    return lambda: producer.commit_transaction()


def _old_transaction(s: Scene) -> Callable[[], object]:
    s.cluster.transactions.finalize(0)
    producer = s.producer()
    producer.init_transactions()
    producer.begin_transaction()
    return lambda: producer.send("t", b"1", partition=0).result(60.0)


def _transaction_offsets(s: Scene) -> Callable[[], object]:
    s.cluster.transactions.finalize(0)
    producer = s.producer()
    producer.init_transactions()
    producer.begin_transaction()
    group = ConsumerGroupMetadata("g")
    offsets = {P0: OffsetAndMetadata(3)}
    return lambda: producer.send_offsets_to_transaction(offsets, group)


CASES = {
    "ListOffsets": ("ListOffsets", _list_offsets),
    "ListOffsets of a reset": ("ListOffsets", _first_list_offsets),
    "OffsetCommit": ("OffsetCommit", _commit),
    "OffsetCommit of a member": ("OffsetCommit", _member_commits),
    "OffsetFetch": ("OffsetFetch", _committed),
    "FindCoordinator": ("FindCoordinator", _find),
    "Metadata of admin": ("Metadata", _metadata),
    "Metadata at the start": ("Metadata", _first_metadata),
    "Metadata of a new topic": ("Metadata", _new_topic),
    "DescribeCluster": ("DescribeCluster", _cluster),
    "Fetch": ("Fetch", _fetch),
    "CreateTopics": ("CreateTopics", _create),
    "DeleteTopics": ("DeleteTopics", _delete),
    "JoinGroup": ("JoinGroup", _join),
    "SyncGroup": ("SyncGroup", _join),
    "LeaveGroup": ("LeaveGroup", _leave),
    "Heartbeat": ("Heartbeat", _beat),
    "ConsumerGroupHeartbeat": ("ConsumerGroupHeartbeat", _consumer_beat),
    "InitProducerId": ("InitProducerId", _producer_id),
    "InitProducerId without a transactional id": ("InitProducerId", _idempotent_id),
    "EndTxn": ("EndTxn", _transaction),
    "AddPartitionsToTxn": ("AddPartitionsToTxn", _old_transaction),
    "AddOffsetsToTxn": ("AddOffsetsToTxn", _transaction_offsets),
    "TxnOffsetCommit": ("TxnOffsetCommit", _transaction_offsets),
}


QUESTIONS = {
    "Metadata at the start": 3,  # the list of brokers, then the requests of an admin call
    "Metadata of admin": 2,  # the call's own request, and the refresh after the missing response
    "JoinGroup": 2,  # the first response contains the member id for the second request (KIP-394)
}
"""Calls that send several slow requests one after the other, or concurrently."""


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(("case", "seconds"), pairs(CASES, [3, 10, 25]))
def test_the_first_response_is_used_however_late_it_arrives(
    case: str, seconds: int, brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, prepare = CASES[case]
    scene = Scene(brokers, api, monkeypatch)
    scene.check(prepare(scene), seconds, QUESTIONS.get(case, 1))


@pytest.mark.parametrize("brokers", [1, 3])
def test_lookups_of_a_slow_coordinator_back_off(
    brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator may have moved, so other brokers are asked, but not once per second."""
    scene = Scene(brokers, "EndTxn", monkeypatch)
    scene.check(_transaction(scene), 25)
    assert 2 <= scene.sent["FindCoordinator"] <= 7, scene.sent


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("seconds", [3, 10])
@pytest.mark.parametrize("brokers", [1, 3])
def test_slow_metadata_that_arrived_is_not_requested_again(
    brokers: int, seconds: int, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unanswered redundant request doesn't cause another refresh."""
    scene = Scene(brokers, "Metadata", monkeypatch)
    producer = scene.client(Producer)
    producer.send("t", b"1", partition=0).result(10.0)
    scene.cluster.create_topic("u", partitions=1)
    scene.slow(seconds)
    new = producer._engine.start(producer._engine.topic("u", scene.world.now + 60.0))
    for n in range(300):
        if busy or not n:
            producer.send("t", b"2", partition=n % 3)
        scene.world.advance(0.2)
    assert new.result().name == "u"
    assert scene.sent["Metadata"] == 2


def test_a_dead_broker_is_detected_although_metadata_was_its_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Metadata requests are fast, so a broker that doesn't answer one counts as dead."""
    scene = Scene(3, "Metadata", monkeypatch)
    scene.cluster.session_timeout = 9.0
    producer = scene.client(Producer)
    for partition in range(3):
        producer.send("t", b"1", partition=partition).result(10.0)
    asked: list[str] = []

    def kill(event: Event) -> None:
        """Kill the broker that is asked first before it can respond."""
        if event.kind == "metadata_request" and not asked:
            asked.append(event.fields["address"])
            scene.cluster.pause(numbers[asked[0]])

    numbers = {str(broker.address): i for i, broker in scene.cluster.brokers.items()}
    producer._engine.events.listen(kill)
    producer._engine.metadata.request("the test")
    while not asked:
        scene.world.advance(0.01)
    number, begun = numbers[asked[0]], scene.world.now
    leaders = scene.cluster.topics["t"].partitions
    led = next(p.index for p in leaders if p.leader == number)
    producer.send("t", b"2", partition=led).result(60.0)
    assert scene.world.now - begun < 9.0 + 3.0, asked


@pytest.mark.parametrize("idle", [0.0, 5.0])
def test_a_frozen_broker_does_not_delay_a_producer_id(idle: float) -> None:
    """A connected broker is asked first, and another one after the suspicion time."""
    stage = Stage(2, partitions=0)
    stage.cluster.create_topic("t", assignments={0: [1], 1: [2], 2: [3]})
    frozen = stage.cluster.brokers[1]
    with stage.producer(**{"bootstrap.servers": str(frozen.address)}) as producer:
        producer.partitions_for("t")
        stage.world.advance(idle)
        stage.cluster.pause(frozen.id)
        begun = stage.world.now
        producer.send("t", b"x", partition=1).result(timeout=60)
        assert stage.world.now - begun < 3.0
        others = [b for b in stage.cluster.brokers.values() if b is not frozen]
        assert sum(b.requests["InitProducerId"] for b in others) == 1
        stage.cluster.heal()
