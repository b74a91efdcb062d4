from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages import create_topics as ct
from odradek.protocol.messages import delete_topics as dt
from odradek.protocol.messages import fetch as f
from odradek.protocol.messages import list_offsets as lo
from odradek.protocol.messages import produce as p
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.record import BatchBuilder, decode
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker_handlers import HANDLERS
from odradek.simulation.brokers.group_handlers import GROUP_HANDLERS
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.simulation.brokers.transaction_handlers import TRANSACTION_HANDLERS

COORDINATED = {*GROUP_HANDLERS, *TRANSACTION_HANDLERS} - {InitProducerIdRequest}
"""APIs that only coordinators answer; the coordinators' tests call every version of them."""
KINDS: list[type[Message]] = [ApiVersionsRequest, *(k for k in HANDLERS if k not in COORDINATED)]
ALL_VERSIONS = [
    (kind, version) for kind in KINDS for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1)
]


def records(*values: bytes, **ids: Any) -> memoryview:
    builder = BatchBuilder(1 << 20, None)
    for i, value in enumerate(values):
        builder.append(None, value, (), 1000 + i)
    return builder.build(**ids)


class Setting:
    """One broker that leads topic t, and a raw client that is connected to it."""

    def __init__(self, brokers: int = 1) -> None:
        self.world = World(5)
        self.cluster = SimulatedCluster(self.world, brokers)
        self.topic = self.cluster.create_topic("t", 2)
        self.broker = self.cluster.brokers[1]
        self.client = RawClient(self.world)
        self.client.dial(self.broker.address.host)
        self.ask = self.client.ask

    def request(self, kind: type[Message], version: int) -> Any:
        """Return a valid request of this API and version."""
        topic_id = self.topic.id
        made: dict[type[Message], Any] = {
            p.ProduceRequest: lambda: self.produce(version, records(b"a", b"b")),
            f.FetchRequest: lambda: self.fetch(version),
            lo.ListOffsetsRequest: lambda: self.list_offsets(-1),
            ct.CreateTopicsRequest: lambda: ct.CreateTopicsRequest(
                [ct.CreatableTopic("new", 3, 1)]
            ),
            dt.DeleteTopicsRequest: lambda: (
                dt.DeleteTopicsRequest(topic_names=["t"])
                if version < 6
                else dt.DeleteTopicsRequest([dt.DeleteTopicState(None, topic_id)])
            ),
            MetadataRequest: lambda: MetadataRequest([MetadataRequestTopic(name="t")]),
            InitProducerIdRequest: lambda: InitProducerIdRequest(None),
        }
        return made.get(kind, kind)()

    def produce(self, version: int, data: Any, *, partition: int = 0, acks: int = -1) -> Any:
        return p.ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                p.TopicProduceData(
                    "t" if version < 13 else "",
                    self.topic.id if version >= 13 else bytes(16),
                    [p.PartitionProduceData(partition, data)],
                )
            ],
        )

    def fetch(self, version: int, offset: int = 0, **fields: Any) -> Any:
        part = f.FetchPartition(
            0, fetch_offset=offset, partition_max_bytes=fields.pop("most", 1 << 20)
        )
        if version >= 9:
            part.current_leader_epoch = fields.pop("leader_epoch", -1)
        return f.FetchRequest(
            topics=[
                f.FetchTopic(
                    "t" if version < 13 else "",
                    self.topic.id if version >= 13 else bytes(16),
                    [part],
                )
            ],
            **fields,
        )

    def list_offsets(self, timestamp: int, epoch: int = -1) -> Any:
        part = lo.ListOffsetsPartition(0, epoch, timestamp)
        return lo.ListOffsetsRequest(-1, topics=[lo.ListOffsetsTopic("t", [part])])

    def produced(self, version: int, data: Any, **how: Any) -> p.PartitionProduceResponse:
        response = self.ask(self.produce(version, data, **how), version)
        answer: p.PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def fetched(self, version: int, offset: int = 0, wait: float = 1.0, **how: Any) -> Any:
        response = self.ask(self.fetch(version, offset, **how), version, wait)
        return response.responses[0].partitions[0]

    def offset(self, timestamp: int, epoch: int = -1) -> Any:
        response = self.ask(self.list_offsets(timestamp, epoch), 11)
        return response.topics[0].partitions[0]


@pytest.fixture
def setting() -> Setting:
    return Setting()


REFUSED: dict[str, type[BrokerError]] = {
    "AlterShareGroupOffsets": errors.InvalidGroupIdError,
    "DeleteShareGroupOffsets": errors.InvalidGroupIdError,
    "OffsetDelete": errors.InvalidGroupIdError,
    "ExpireDelegationToken": errors.DelegationTokenNotFoundError,
    "RenewDelegationToken": errors.DelegationTokenNotFoundError,
    "PushTelemetry": errors.UnknownSubscriptionIdError,
    "RemoveRaftVoter": errors.VoterNotFoundError,
    "UnregisterBroker": errors.BrokerIdNotRegisteredError,
    "UnregisterController": errors.ControllerIdNotRegisteredError,
    **dict.fromkeys(("SaslAuthenticate", "SaslHandshake"), errors.IllegalSaslStateError),
}
"""Errors by API: of requests about unknown groups or ids, and of SASL requests without SASL."""


@pytest.mark.parametrize(
    ("kind", "version"), ALL_VERSIONS, ids=[f"{k.API_NAME}-{v}" for k, v in ALL_VERSIONS]
)
def test_every_api_answers_in_every_version(
    setting: Setting, kind: type[Message], version: int
) -> None:
    setting.cluster.receive_telemetry(TelemetryReceiver())
    answer = setting.ask(setting.request(kind, version), version)
    assert answer is not None
    assert setting.client.lost == []
    codes = str(answer).split("error_code=")[1:]
    refused = REFUSED.get(kind.API_NAME)
    expected = "0" if refused is None else str(refused.code)
    assert [c for c in codes if not c.startswith(expected)] == []
    assert setting.broker.requests == {kind.API_NAME: 1}


def test_an_api_versions_request_of_an_unknown_version_is_answered_in_version_0() -> None:
    setting = Setting()
    setting.cluster.versions[18] = (0, 3)
    answer = setting.ask(ApiVersionsRequest("odradek", "1"), 4)
    assert answer.error_code == errors.UnsupportedVersionError.code
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 3)]


def test_an_unsupported_version_closes_the_connection(setting: Setting) -> None:
    setting.cluster.versions[3] = (0, 12)
    assert setting.ask(MetadataRequest(None), 13) is None
    assert setting.client.lost == [None]


def test_fetched_records_equal_the_produced_ones(setting: Setting) -> None:
    assert setting.produced(13, records(b"a", b"b")).base_offset == 0
    assert setting.produced(12, records(b"c")).base_offset == 2
    got = setting.fetched(18, 1)
    assert (got.error_code, got.high_watermark, got.log_start_offset) == (0, 3, 0)
    rows = decode(got.records, start_offset=1).columns.rows()
    assert [(row[0], row[4]) for row in rows] == [(1, b"b"), (2, b"c")]
    assert [row[4] for row in setting.cluster.records("t", 0)] == [b"a", b"b", b"c"]


def test_a_produce_request_with_a_corrupt_or_out_of_order_batch_is_rejected(
    setting: Setting,
) -> None:
    bad = bytearray(records(b"x"))
    bad[-1] ^= 1
    answer = setting.produced(13, bytes(bad))
    assert answer.error_code == errors.CorruptMessageError.code
    assert answer.base_offset == -1
    again = {"producer_id": 7, "producer_epoch": 0}
    assert setting.produced(13, records(b"a", base_sequence=0, **again)).base_offset == 0
    assert setting.produced(13, records(b"a", base_sequence=0, **again)).base_offset == 0
    assert setting.cluster.duplicates_refused == 1
    gap = setting.produced(13, records(b"c", base_sequence=2, **again))
    assert gap.error_code == errors.OutOfOrderSequenceNumberError.code
    assert gap.error_message


def test_a_produce_request_with_acks_0_gets_no_response(setting: Setting) -> None:
    setting.client.send(setting.produce(13, records(b"a"), acks=0), 13)
    assert setting.ask(DescribeClusterRequest(), 2).API_NAME == "DescribeCluster"
    assert len(setting.client.answers) == 1
    assert len(setting.cluster.records("t", 0)) == 1


def test_a_produce_request_is_rejected_if_too_few_replicas_are_in_sync(setting: Setting) -> None:
    setting.cluster.min_insync_replicas = 2
    answer = setting.produced(13, records(b"a"))
    assert answer.error_code == errors.NotEnoughReplicasError.code


def test_unknown_topics_partitions_and_topic_ids_are_rejected(setting: Setting) -> None:
    answer = setting.produced(13, records(b"a"), partition=9)
    assert answer.error_code == errors.UnknownTopicOrPartitionError.code
    old_id = setting.topic.id
    setting.cluster.delete_topic("t")
    assert setting.produced(13, records(b"a")).error_code == errors.UnknownTopicIdError.code
    assert setting.fetched(18).error_code == errors.UnknownTopicIdError.code
    assert setting.fetched(12).error_code == errors.UnknownTopicOrPartitionError.code
    assert setting.offset(-1).error_code == errors.UnknownTopicOrPartitionError.code
    asked = [MetadataRequestTopic(old_id, None), MetadataRequestTopic(name="t")]
    found = setting.ask(MetadataRequest(asked), 13)
    assert [t.error_code for t in found.topics] == [100, 3]


def test_a_broker_that_is_not_the_leader_names_the_current_leader() -> None:
    setting = Setting(brokers=3)
    setting.cluster.move_leader("t", 0, to=2)
    place = setting.cluster.brokers[2].address
    response = setting.ask(setting.produce(13, records(b"a")), 13)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == errors.NotLeaderOrFollowerError.code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    assert [(n.node_id, n.host, n.port) for n in response.node_endpoints] == [
        (2, place.host, place.port)
    ]
    response = setting.ask(setting.fetch(18), 18)
    assert response.responses[0].partitions[0].current_leader.leader_id == 2
    assert response.node_endpoints[0].node_id == 2


def test_a_request_with_a_wrong_leader_epoch_is_rejected(setting: Setting) -> None:
    setting.topic.partitions[0].leader_epoch = 5
    assert setting.fetched(18, leader_epoch=4).error_code == errors.FencedLeaderEpochError.code
    assert setting.fetched(18, leader_epoch=6).error_code == errors.UnknownLeaderEpochError.code
    assert setting.fetched(18, leader_epoch=5).error_code == 0
    assert setting.offset(-1, 4).error_code == errors.FencedLeaderEpochError.code


def test_a_fetch_at_an_offset_outside_the_log_is_rejected(setting: Setting) -> None:
    assert setting.fetched(18, 1).error_code == errors.OffsetOutOfRangeError.code
    setting.produced(13, records(b"a"))
    assert setting.fetched(18, 1).error_code == 0
    setting.cluster.log("t", 0).start_offset = 1
    assert setting.fetched(18, 0).error_code == errors.OffsetOutOfRangeError.code


def test_a_fetch_waits_for_records_or_its_timeout(setting: Setting) -> None:
    before = setting.world.now
    empty = setting.fetched(18, 0, max_wait_ms=500, min_bytes=1)
    assert len(empty.records) == 0
    assert 0.5 <= setting.world.now - before < 0.51

    other = type(setting.client)(setting.world)
    other.dial(setting.broker.address.host)
    setting.world.after(0.2, lambda: other.send(setting.produce(13, records(b"a")), 13))
    before = setting.world.now
    got = setting.fetched(18, 0, max_wait_ms=500, min_bytes=1)
    assert len(got.records) > 0
    assert 0.2 <= setting.world.now - before < 0.21
    assert not setting.cluster.log("t", 0).on_commit


def test_a_waiting_fetch_ends_when_the_leader_changes() -> None:
    setting = Setting(brokers=3)
    setting.world.after(0.1, lambda: setting.cluster.move_leader("t", 0))
    answer = setting.fetched(18, 0, max_wait_ms=5000, min_bytes=1)
    assert answer.error_code == errors.NotLeaderOrFollowerError.code
    assert setting.world.now < 0.2


def test_later_requests_of_a_connection_wait_for_a_long_poll(setting: Setting) -> None:
    setting.client.send(setting.fetch(18, max_wait_ms=300, min_bytes=1), 18)
    setting.client.send(DescribeClusterRequest(), 2)
    setting.world.advance(0.29)
    assert setting.client.answers == []
    setting.world.advance(0.1)
    assert [m.API_NAME for _, m in setting.client.answers] == ["Fetch", "DescribeCluster"]


def test_fetch_sessions_return_only_changed_partitions(setting: Setting) -> None:
    first = setting.ask(setting.fetch(18, session_epoch=0), 18)
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 1
    more = f.FetchRequest(session_id=first.session_id, session_epoch=1)
    assert setting.ask(more, 18).responses == []
    setting.produced(13, records(b"a"))
    more.session_epoch = 2
    (topic,) = setting.ask(more, 18).responses
    assert len(topic.partitions[0].records) > 0
    more.session_epoch = 3  # the fetch offset is the same as before
    assert setting.ask(more, 18).responses != []
    more.session_epoch = 4
    more.forgotten_topics_data = [f.ForgottenTopic(topic_id=setting.topic.id, partitions=[0])]
    assert setting.ask(more, 18).responses == []
    more.session_epoch = 4
    assert setting.ask(more, 18).error_code == errors.InvalidFetchSessionEpochError.code
    setting.broker.fetch_sessions.clear()
    assert setting.ask(more, 18).error_code == errors.FetchSessionIdNotFoundError.code


def test_fetch_sessions_return_partitions_whose_log_has_grown(setting: Setting) -> None:
    """A response contains a partition that is new, has grown, or had an error before.

    As in Kafka's `CachedPartition`, it counts as grown even if its records weren't requested.
    """
    first = setting.ask(setting.fetch(18, session_epoch=0), 18)
    steps = [(0, 0, [0]), (0, 0, []), (1, 1, [1]), (1, 9, [1]), (1, 1, [1]), (1, 1, [])]
    for epoch, (size, offset, told) in enumerate(steps, start=1):
        if size > setting.offset(-1).offset:
            setting.produced(13, records(b"a"))
        more = setting.fetch(18, offset, session_epoch=epoch)
        more.session_id = first.session_id
        if epoch == 1:  # forget the partition, then add it again
            more.forgotten_topics_data = [
                f.ForgottenTopic(topic_id=setting.topic.id, partitions=[0])
            ]
        answer = setting.ask(more, 18)
        ends = [p.high_watermark for t in answer.responses for p in t.partitions]
        assert ends == told


def test_a_fetch_without_a_session_returns_every_partition(setting: Setting) -> None:
    for version in (4, 6, 18):
        single = setting.ask(setting.fetch(version), version)
        assert single.session_id == 0
        assert len(single.responses[0].partitions) == 1


def test_list_offsets_returns_offsets_by_timestamp(setting: Setting) -> None:
    setting.produced(13, records(b"a", b"b"))
    assert setting.offset(-2).offset == 0
    assert setting.offset(-1).offset == 2
    assert (setting.offset(1001).offset, setting.offset(1001).timestamp) == (1, 1001)
    assert setting.offset(5000).offset == -1
    assert setting.offset(-3).offset == 1
    setting.topic.partitions[0].offsets_unavailable_until = 100.0
    assert setting.offset(-1).error_code == errors.OffsetNotAvailableError.code


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (ct.CreatableTopic("t", 1, 1), 36),
        (ct.CreatableTopic("a/b", 1, 1), 17),
        (ct.CreatableTopic("", 1, 1), 17),
        (ct.CreatableTopic("n", 0, 1), 37),
        (ct.CreatableTopic("n", 1, 2), 38),
        (ct.CreatableTopic("n", -1, -1, [ct.CreatableReplicaAssignment(1, [1])]), 39),
        (ct.CreatableTopic("n", -1, -1, [ct.CreatableReplicaAssignment(0, [9])]), 39),
        (ct.CreatableTopic("n", -1, -1, [ct.CreatableReplicaAssignment(0, [1])]), 0),
        (ct.CreatableTopic("n", -1, -1), 0),
    ],
)
def test_topics_are_validated_before_they_are_created(
    setting: Setting, topic: ct.CreatableTopic, code: int
) -> None:
    checked = setting.ask(ct.CreateTopicsRequest([topic], validate_only=True), 7)
    made = setting.ask(ct.CreateTopicsRequest([topic]), 7)
    assert (checked.topics[0].error_code, made.topics[0].error_code) == (code, code)
    assert ("n" in setting.cluster.topics) is (code == 0)


def test_metadata_creates_topics_only_if_auto_creation_is_enabled(setting: Setting) -> None:
    asked = MetadataRequest([MetadataRequestTopic(name="auto")])
    assert setting.ask(asked, 13).topics[0].error_code == 3
    setting.cluster.auto_create = True
    assert setting.ask(asked, 13).topics[0].error_code == 0
    quiet = MetadataRequest([MetadataRequestTopic(name="no")], allow_auto_topic_creation=False)
    assert setting.ask(quiet, 13).topics[0].error_code == 3


def test_producer_ids_are_unique(setting: Setting) -> None:
    ids = [setting.ask(InitProducerIdRequest(None), 5).producer_id for _ in range(3)]
    assert len(set(ids)) == 3
    refused = setting.ask(InitProducerIdRequest("transaction"), 5)
    assert refused.error_code != 0


def test_throttling_and_slow_handshakes_delay_clients(setting: Setting) -> None:
    setting.broker.throttle = 0.25
    assert setting.ask(DescribeClusterRequest(), 2).throttle_time_ms == 250
    setting.broker.delay(ApiVersionsRequest.API_KEY, 3.0)
    before = setting.world.now
    setting.ask(ApiVersionsRequest("odradek", "1"), 4, 5.0)
    assert 3.0 <= setting.world.now - before < 3.01
