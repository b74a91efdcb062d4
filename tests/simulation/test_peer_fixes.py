"""Former bugs of other clients that no other test covers: see tests/spec/peer_fixes.json."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from tests.simulation.group_scene import PARTITIONS, Scene
from tests.simulation.sasl_scene import Scene as SaslScene
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers
from tests.simulation.test_metrics_push import SENT, send, staged

from odradek.api.admin import Admin
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.registry import request_class
from odradek.simulation.brokers.broker_faults import answer_error
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver

T0, T1 = PARTITIONS[:2]
BY_ID = (8, 9, 28)
"""APIs whose newest version contains only topic ids, which the client may not know."""


def values(records: list[Any]) -> list[int]:
    return [int(r.value or b"") for r in records]


def test_a_group_that_two_coordinators_list_is_listed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def both(answer: ListGroupsResponse) -> None:
        answer.groups[:] = [ListedGroup("g", "consumer", "Stable", "Classic")]

    spoil_answers(monkeypatch, ListGroupsRequest.API_KEY, both)
    with Stage().client(Admin) as admin:
        assert [g.group_id for g in admin.list_groups()] == ["g"]


def test_clients_work_with_brokers_that_only_support_the_newest_versions() -> None:
    newest = {
        key: (request_class(key).MAX_VERSION - (key in BY_ID), request_class(key).MAX_VERSION)
        for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 23, 26, 28, 68)
    }
    stage = Stage(versions=newest)
    with stage.producer(transactional_id="x", compression_type="zstd") as producer:
        producer.init_transactions(10.0)
        with producer.transaction():
            for n in range(6):
                producer.send("t", b"%d" % n, partition=n % 3)
            producer.send_offsets_to_transaction({T0: 1}, "other", 10.0)
        assert producer._engine.transactions is not None
        assert producer._engine.transactions.version_2
    for protocol in ("classic", "consumer"):
        options = {"group_id": protocol, "group_protocol": protocol}
        with stage.consumer(isolation_level="read_committed", **options) as consumer:
            consumer.subscribe(["t"])
            assert stage.read(consumer, 6) == list(range(6))
            consumer.commit(timeout=5.0)


def test_requests_contain_topic_names_if_metadata_has_no_topic_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nameless(
        answer: MetadataResponse,
    ) -> None:  # as brokers with an old inter.broker.protocol.version do
        for topic in answer.topics:
            topic.topic_id = bytes(16)

    stage = Stage(partitions=4)
    sent: dict[int, set[int]] = {ProduceRequest.API_KEY: set(), FetchRequest.API_KEY: set()}
    stage.cluster.observers.append(
        lambda _, __, request: sent.get(request.api_key, set()).add(request.version)
    )
    spoil_answers(monkeypatch, MetadataRequest.API_KEY, nameless)
    stage.write(range(8))
    with stage.consumer() as consumer:
        consumer.assign(PARTITIONS)
        assert stage.read(consumer, 8) == list(range(8))
    assert sent == {ProduceRequest.API_KEY: {12}, FetchRequest.API_KEY: {12}}


@pytest.mark.parametrize("what", ["left out", "an error", "no leader", "the topic"])
def test_no_record_is_lost_if_a_partition_is_briefly_missing_in_metadata(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(partitions=2)
    lacking = False

    def lack(answer: MetadataResponse) -> None:
        for topic in answer.topics if lacking else ():
            if what == "the topic":
                topic.error_code, topic.partitions = 3, []
            elif what == "left out":
                del topic.partitions[1:]
            else:
                topic.partitions[1].leader_id = -1
                topic.partitions[1].error_code = 5 if what == "an error" else 0

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, lack)
    with stage.producer() as producer, stage.consumer() as consumer:
        consumer.assign([T0, T1])
        producer.send("t", b"0", partition=1).result(5.0)
        assert values(consumer.poll(5.0)) == [0]
        lacking = True
        for client in (producer, consumer):
            client._engine.metadata.request("a test")
        stage.cluster.move_leader("t", 1)
        sent = producer.send("t", b"1", partition=1)
        stage.world.advance(2.0)
        lacking = False
        begun = stage.world.now
        sent.result(10.0)
        assert values(consumer.poll(10.0)) == [1]
        assert stage.world.now - begun < 3.0


def test_metadata_with_a_retriable_error_of_a_partition_is_refreshed_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, left = Stage(partitions=1), 2

    def refuse(answer: MetadataResponse) -> None:
        nonlocal left
        for topic in answer.topics if left else ():
            left -= 1
            topic.partitions[0].error_code, topic.partitions[0].leader_id = 5, -1

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, refuse)
    with stage.producer() as producer:
        begun = stage.world.now
        producer.send("t", b"0").result(10.0)
        assert stage.world.now - begun < 2.0


@pytest.mark.parametrize("of", ["end_offsets", "beginning_offsets", "offsets_for_times"])
def test_a_consumer_asks_the_new_leader_for_offsets_soon(of: str) -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    with stage.consumer() as consumer:
        call: Any = getattr(consumer, of)
        given: Any = {T0: 0} if of == "offsets_for_times" else [T0]
        before = call(given, timeout=5.0)
        for broker in stage.cluster.brokers:  # all brokers return the old leader for a while
            stage.cluster.stale_metadata(broker)
            stage.world.after(0.3, partial(stage.cluster.stale_metadata, broker, on=False))
        stage.cluster.move_leader("t", 0)
        begun = stage.world.now
        assert call(given, timeout=5.0) == before
        assert 0.3 < stage.world.now - begun < 1.5


def test_resume_of_a_partition_that_is_not_paused_has_no_effect() -> None:
    stage = Stage(partitions=1)
    stage.write(range(9))
    with stage.consumer() as consumer:
        consumer.assign([T0])
        consumer.pause([T0])
        consumer.resume([T0])
        read: list[int] = []
        while len(read) < 9:
            read += values(consumer.poll(1.0, 2))
            consumer.resume([T0])
            assert consumer.position(T0) == len(read)
        assert read == list(range(9))


def ends(answer: Any) -> list[Any]:
    return [end for topic in answer.topics for end in topic.partitions]


def answers_nothing(patch: pytest.MonkeyPatch, code: int) -> None:
    def unknown(answer: Any) -> None:
        for end in ends(answer):
            end.error_code, end.leader_epoch, end.end_offset = code, -1, -1

    spoil_answers(patch, OffsetForLeaderEpochRequest.API_KEY, unknown)


@pytest.mark.parametrize("policy", ["none", "latest"])
def test_positions_are_kept_if_the_leader_returns_no_epochs(
    policy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    answers_nothing(monkeypatch, 0)
    with stage.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign({T0: 0})
        assert stage.read(consumer, 5) == list(range(5))
        stage.cluster.move_leader("t", 0)
        stage.write(range(5, 8))
        assert stage.read(consumer, 3) == [5, 6, 7]
    assert "lost" not in caplog.text


@pytest.mark.parametrize("code", [29, 42])
def test_a_permanent_error_of_the_validation_resets_no_position(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    with stage.consumer(auto_offset_reset="latest") as consumer:
        consumer.assign({T0: 0})
        assert stage.read(consumer, 5) == list(range(5))
        with monkeypatch.context() as patch:
            answers_nothing(patch, code)
            stage.cluster.move_leader("t", 0)
            stage.write(range(5, 8))
            for _ in range(3):
                with pytest.raises(KafkaError):
                    consumer.poll(1.0)
                assert consumer.position(T0) == 5
        assert stage.read(consumer, 3) == [5, 6, 7]


def test_a_position_is_validated_without_delay() -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    with stage.consumer() as consumer:
        consumer.assign([T0])
        assert stage.read(consumer, 5) == list(range(5))
        stage.cluster.move_leader("t", 0)
        stage.write(range(5, 6))
        begun = stage.world.now
        assert stage.read(consumer, 1) == [5]
        assert stage.world.now - begun < 0.4


def test_the_epoch_of_a_committed_offset_does_not_delay_fetches() -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({T0: OffsetAndMetadata(2, leader_epoch=0)})
        consumer.assign([T0])
        assert stage.read(consumer, 3) == [2, 3, 4]
        stage.cluster.move_leader("t", 0)
        stage.cluster.move_leader("t", 0)
        stage.write(range(5, 6))
        assert stage.read(consumer, 1) == [5]
        consumer.commit(timeout=5.0)
    with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])  # metadata may be older than the committed epoch
        stage.write(range(6, 7))
        begun = stage.world.now
        assert stage.read(consumer, 1) == [6]
        assert stage.world.now - begun < 1.0


def test_records_below_the_fetch_offset_do_not_cause_endless_fetches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(partitions=1)
    stage.write(range(5))
    stage.write(range(5, 6))
    first = bytes(stage.cluster.log("t", 0).batches[0].data)

    def older(answer: Any) -> None:
        for topic in answer.responses:
            for part in topic.partitions:
                part.records = first

    with stage.consumer() as consumer:
        consumer.assign({T0: 5})
        with monkeypatch.context() as patch:
            spoil_answers(patch, FetchRequest.API_KEY, older)
            asked: Counter[int] = Counter()
            stage.cluster.observers.append(lambda _, __, request: asked.update([request.api_key]))
            assert consumer.poll(5.0) == []
            assert asked[FetchRequest.API_KEY] < 60
        assert stage.read(consumer, 1) == [5]


def test_max_poll_records_limits_the_records_of_all_partitions_together() -> None:
    stage = Stage(partitions=4)
    stage.cluster.create_topic("u", partitions=4)
    for topic in ("t", "u"):
        stage.write(range(40), topic)
    with stage.consumer(max_poll_records=7) as consumer:
        consumer.assign([TopicPartition(name, n) for name in "tu" for n in range(4)])
        found = 0
        while found < 80:
            records = consumer.poll(1.0)
            assert 0 < len(records) <= 7
            found += len(records)


@pytest.mark.parametrize("code", [5, 56])
def test_a_partition_without_a_leader_or_disk_is_used_again_once_it_returns(
    code: int,
) -> None:
    stage = Stage(partitions=1)
    stage.write(range(2))
    with stage.producer() as producer, stage.consumer() as consumer:
        consumer.assign([T0])
        assert stage.read(consumer, 2) == [0, 1]
        for api in ("Produce", "Fetch", "ListOffsets"):
            answer_error(stage.cluster, api, code, 3)
        sent = producer.send("t", b"2")
        assert stage.read(consumer, 1) == [2]
        sent.result(5.0)
        assert consumer.end_offsets([T0], 5.0) == {T0: 3}


@pytest.mark.parametrize("code", [-1, 14, 51])
@pytest.mark.parametrize("done", [False, True])
def test_a_commit_with_an_error_response_succeeds_only_if_it_was_stored(
    code: int, done: bool
) -> None:
    stage = Stage(partitions=1)
    with stage.producer(transactional_id="x") as producer:
        producer.init_transactions(10.0)
        producer.begin_transaction()
        producer.send("t", b"0").result(5.0)
        answer_error(stage.cluster, "EndTxn", code, 1, done)
        with nullcontext() if code > 0 else pytest.raises(KafkaError):
            producer.commit_transaction(10.0)
    with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([T0])
        assert len(consumer.poll(2.0)) == (code > 0 or done)


def test_a_partition_added_to_a_transaction_stays_in_it_if_another_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(partitions=2)
    stage.cluster.transactions.finalize(0)
    with stage.producer(transactional_id="x", linger_ms=0) as producer:
        producer.init_transactions(10.0)
        producer.begin_transaction()
        producer.send("t", b"0", partition=0).result(5.0)
        answer_error(stage.cluster, "AddPartitionsToTxn", 51, 2)
        producer.send("t", b"1", partition=1).result(5.0)
        producer.commit_transaction(10.0)
        stage.world.advance(1.0)
        assert not stage.cluster.log("t", 0).transactions.open
        assert not stage.cluster.log("t", 1).transactions.open
        producer.begin_transaction()
        producer.send("t", b"2", partition=0).result(5.0)
        answer_error(stage.cluster, "AddPartitionsToTxn", 29, 1)
        refused = producer.send("t", b"3", partition=1)
        assert isinstance(refused.exception(5.0), KafkaError)
        producer.abort_transaction(10.0)
        stage.world.advance(1.0)
        assert not stage.cluster.log("t", 0).transactions.open
    with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([T0, T1])
        assert stage.read(consumer, 2) == [0, 1]
        assert consumer.poll(1.0) == []


def test_the_error_names_brokers_that_lack_sasl_authenticate() -> None:
    scene = SaslScene()
    scene.cluster.versions[SaslHandshakeRequest.API_KEY] = (0, 0)
    with (
        scene.client(Admin) as admin,
        pytest.raises(KafkaError, match=r"doesn't support SaslAuthenticate \(Kafka 1\.0"),
    ):
        admin.list_topics(timeout=5.0)


def test_metrics_are_pushed_once_if_their_subscription_matches_twice_or_not_at_all() -> None:
    for wanted, count in (((SENT, SENT[:-3], ""), 1), (("org.example.",), 0)):
        stage, receiver = staged(requested_metrics=wanted, interval=5.0)
        with stage.producer() as producer:
            send(producer, 1)
            stage.world.advance(12.0)
            send(producer, 1)
        assert receiver.pushed[-1].terminating
        for pushed in receiver.pushed:
            (resource,) = MetricsData.FromString(pushed.metrics).resource_metrics
            found = [m.name for scope in resource.scope_metrics for m in scope.metrics]
            assert found.count(SENT) == count
            assert bool(found) is bool(count)


def test_unusual_names_do_not_break_metrics() -> None:
    receiver = TelemetryReceiver(interval=5.0)
    scene = Scene()
    scene.cluster.receive_telemetry(receiver)
    odd = 'ü"\n\\{}=,\0'
    with scene.member(client_rack=odd, group_id=odd) as a:
        a.assign([T0])
        a.poll(12.0)
    for pushed in receiver.pushed:
        (resource,) = MetricsData.FromString(pushed.metrics).resource_metrics
        found = {a.key: a.value.string_value for a in resource.resource.attributes}
        assert (found["client_rack"], found["group_id"]) == (odd, odd)
    assert receiver.pushed


def test_a_batch_that_lingers_while_its_partition_moves_is_sent_to_the_new_leader() -> None:
    stage = Stage(partitions=1)
    with stage.producer(linger_ms=100) as producer:
        producer.send("t", b"0").result(5.0)
        sent = producer.send("t", b"1")
        stage.world.advance(0.05)
        stage.cluster.move_leader("t", 0)
        begun = stage.world.now
        assert sent.result(5.0).offset == 1
        assert stage.world.now - begun < 0.6
    assert stage.values() == [b"0", b"1"]
