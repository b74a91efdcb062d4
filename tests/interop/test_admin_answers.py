"""Compare the results of our admin client and Java's for one cluster.

`AdminAnswers.java` prints a line for each result; this module formats our results the same way. One
JVM runs all calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.interop.group_members import end_program, java_program
from tests.time_limits import HANG_S
from tests.unit.test_admin_page import names

import odradek as o
from odradek.testing import LocalCluster

PATIENCE = 60.0
TELEMETRY = {
    *("clientInstanceId", "metrics", "registerMetricForSubscription"),
    "unregisterMetricFromSubscription",
}
Lines = list[str]


def line(name: str, *words: object) -> str:
    said = (str(w).lower() if isinstance(w, bool) else str(w) for w in words)
    return "\t".join([name, *("null" if w == "None" else w for w in said)])


def numbers(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))


def topics(admin: o.Admin, topic: str, _: str, __: str) -> Iterator[str]:
    cluster = admin.describe_cluster()
    yield line("cluster", cluster.cluster_id)
    for broker in cluster.brokers:
        yield line("broker", broker.id, broker.host, broker.port)
    described = admin.describe_topics(topic)[topic]
    yield line("topic", described.topic_id, described.internal)
    for p in described.partitions:
        yield line("partition", p.partition, p.leader, numbers(p.replicas), numbers(p.isr))
    for name in admin.list_topics(include_internal=True):
        yield line("name", name)
    resources = [
        o.admin.ConfigResource("TOPIC", topic),
        o.admin.ConfigResource("BROKER", "0"),
        o.admin.ConfigResource("BROKER_LOGGER", "0"),
        o.admin.ConfigResource("CLIENT_METRICS", topic),
    ]
    for at, options in admin.describe_configs(resources, include_synonyms=True).items():
        for e in options.values():
            sources = " ".join(s.source for s in e.synonyms)
            what = e.name, e.value, e.source, e.read_only, e.sensitive, e.type, sources
            yield line("option", at.type, at.name, *what)
    for at in admin.list_config_resources():
        yield line("resource", at.type, at.name)


def groups(admin: o.Admin, topic: str, group: str, _: str) -> Iterator[str]:
    for g in admin.list_groups():
        if g.group_id.startswith(group):
            yield line("group", g.group_id, g.protocol_type, g.state, g.type)
    both = [f"{group}-classic", f"{group}-consumer"]
    for name, d in admin.describe_consumer_groups(both).items():
        yield line("described", name, d.type, d.state, d.assignor)
        for m in d.members:
            places = " ".join(map(str, m.assignment))
            yield line("member", name, m.member_id, m.client_id, m.host, places)
    idle = f"{group}-idle"
    for at, c in admin.list_group_offsets(idle)[idle].items():
        yield line("committed", at, c.offset, c.metadata, c.leader_epoch)
    first = o.TopicPartition(topic, 0)
    specs: tuple[str | int, ...] = ("LATEST", "EARLIEST", "MAX_TIMESTAMP", "EARLIEST_LOCAL", 1)
    for spec in specs:
        found = admin.list_offsets({first: spec})[first]
        at_ms = -1 if found.timestamp_ms is None else found.timestamp_ms
        yield line("offset", spec, found.offset, at_ms, found.leader_epoch)


def cluster(admin: o.Admin, topic: str, _: str, __: str) -> Iterator[str]:
    for name, f in admin.describe_features().features.items():
        yield line("feature", name, f.lowest, f.highest, f.level)
    quorum = admin.describe_metadata_quorum()
    yield line("quorum", quorum.leader_id, quorum.leader_epoch)
    for voter in quorum.voters:
        yield line("voter", voter.id)
    for broker, directories in admin.describe_log_dirs([0]).items():
        for path, directory in directories.items():
            yield line("directory", broker, path, directory.total_bytes)
            for at, r in directory.replicas.items():
                if at.topic == topic:
                    yield line("replica", broker, at, r.size, r.offset_lag, r.future)
    yield line("moving", len(admin.list_partition_reassignments()))


def transactions(admin: o.Admin, topic: str, _: str, transactional_id: str) -> Iterator[str]:
    first = o.TopicPartition(topic, 0)
    for p in admin.describe_producers([first])[first]:
        start = -1 if p.transaction_start_offset is None else p.transaction_start_offset
        last = p.last_sequence, p.last_timestamp_ms, p.coordinator_epoch
        yield line("producer", p.producer_id, p.producer_epoch, *last, start)
    for listed in admin.list_transactions():
        if listed.transactional_id == transactional_id:
            yield line("transaction", transactional_id, listed.producer_id, listed.state)
    t = admin.describe_transactions(transactional_id)[transactional_id]
    places = " ".join(map(str, sorted(t.partitions)))
    whose = t.producer_id, t.producer_epoch, t.timeout_ms, t.start_ms
    yield line("state", t.state, *whose, places)
    for entity, quotas in admin.describe_client_quotas().items():
        kinds = {"client-id": entity.client_id, "ip": entity.ip, "user": entity.user}
        parts = {
            k: "null" if v == o.admin.ClientQuotaEntity.DEFAULT else v
            for k, v in kinds.items()
            if v
        }
        yield line("quota", _map(parts), _map({k: quotas[k] for k in sorted(quotas)}))


def _map(found: dict[str, object] | dict[str, str] | dict[str, float]) -> str:
    return "{" + ", ".join(f"{k}={v}" for k, v in found.items()) + "}"


CALLS: tuple[Callable[[o.Admin, str, str, str], Iterator[str]], ...] = (
    *(topics, groups, cluster),
    transactions,
)


def java_lines(servers: str, *words: str) -> Lines:
    process = java_program(Path(__file__).with_name("AdminAnswers.java"), servers, *words)
    try:
        said, _ = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
        return said.splitlines()
    finally:
        end_program(process)


@pytest.fixture
def cluster_objects(cluster: LocalCluster, topic: str) -> Iterator[tuple[o.Admin, str]]:
    """Create one object of each kind, which don't change."""
    settings = cluster.client_config()
    first = o.TopicPartition(topic, 0)
    with o.Admin(settings, default_api_timeout_ms=30_000) as admin:
        admin.create_topics([o.NewTopic(topic, 2, 1, {"retention.ms": "1000000"})])
        admin.alter_group_offsets(f"{topic}-idle", {first: o.OffsetAndMetadata(1, "a note", 0)})
        admin.incremental_alter_configs(
            {
                o.admin.ConfigResource("CLIENT_METRICS", topic): [
                    o.admin.AlterConfigOp("interval.ms", 60000)  # type: ignore[arg-type]  # a number is written as Kafka reads it
                ],
                o.admin.ConfigResource("GROUP", topic): [
                    o.admin.AlterConfigOp("consumer.heartbeat.interval.ms", "6000")
                ],
            }
        )
        both = o.admin.ClientQuotaEntity(user=topic, client_id=o.admin.ClientQuotaEntity.DEFAULT)
        admin.alter_client_quotas({both: {"producer_byte_rate": 1e6, "request_percentage": 50.5}})
        with (
            o.Consumer(settings, group_id=f"{topic}-classic") as classic,
            o.Consumer(settings, group_id=f"{topic}-consumer", group_protocol="consumer") as new,
            o.Producer(settings, transactional_id=topic) as producer,
        ):
            producer.init_transactions(timeout=PATIENCE)
            for commit in (True, False):
                producer.begin_transaction()
                producer.send(topic, b"value", partition=0).result(timeout=PATIENCE)
                if commit:
                    producer.commit_transaction(timeout=PATIENCE)
            end = time.monotonic() + PATIENCE
            for member in (classic, new):
                member.subscribe([topic])
                while len(member.assignment()) < 2:
                    member.poll(0.2)
                    assert time.monotonic() < end
            yield admin, topic
            producer.abort_transaction(timeout=PATIENCE)


def test_both_admin_clients_return_the_same_results(
    cluster: LocalCluster, cluster_objects: tuple[o.Admin, str]
) -> None:
    admin, topic = cluster_objects
    theirs = java_lines(cluster.bootstrap_servers, topic, topic, topic)
    methods = {m.partition("\t")[2] for m in theirs if m.startswith("method\t")}
    assert methods - TELEMETRY == {n for n in names(0) if not n.islower()} | {"close"}
    ours = [said for ask in CALLS for said in ask(admin, topic, topic, topic)]
    kinds = {said.partition("\t")[0] for said in ours}
    assert len(kinds) == 22
    for kind in sorted(kinds):
        assert sorted(x for x in ours if x.startswith(f"{kind}\t")) == sorted(
            x for x in theirs if x.startswith(f"{kind}\t")
        )
    assert {x.partition("\t")[0] for x in theirs} == kinds | {"method"}
