"""Check that missing permissions are reported by name, without effect on permitted calls."""

from __future__ import annotations

import re
import time

import pytest

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.admin import AclBinding
from odradek.common.errors import AuthorizationError, KafkaError
from odradek.common.errors.kafka import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

OPTIONS = {
    "brokers": 1,
    "security": "SASL_PLAINTEXT",
    "mechanisms": ["SCRAM-SHA-256"],
    "users": {"bob": "bob-secret-23", "carol": "carol-secret-29"},
    "acls": True,
    "config": {"delegation.token.secret.key": "a-key-for-tests"},
}
"""Options of the cluster that `test_admin_security` and `test_secure_recovery` share."""
MINE, SEEN, THEIRS = "mine", "seen", "theirs"


@pytest.fixture(scope="module")
def guarded(clusters: SharedClusters) -> LocalCluster:
    """Let bob write and read `mine` and only describe `seen`; he has no permission for `theirs`."""
    running = clusters.shared(OPTIONS)
    with Admin(running.inner_config()) as admin:
        admin.create_topics([NewTopic(t, 1, 1) for t in (MINE, SEEN, THEIRS)], timeout=30)
        admin.create_acls(
            [
                AclBinding("TOPIC", MINE, "User:bob", "WRITE"),
                *(
                    AclBinding(kind, name, who, "DESCRIBE")
                    for kind, name in (("TOPIC", SEEN), ("GROUP", "known"))
                    for who in ("User:bob", "User:carol")
                ),
            ],
            timeout=30,
        )
    running.allow("bob", "--operation", "Read", "--topic", MINE, "--group", "bobs")
    return running


def refused(error: KafkaError, kind: type[AuthorizationError], right: str, on: str) -> None:
    assert isinstance(error, kind)
    assert (error.operation, error.resource) == (right, on)
    who = r"User '(bob|carol)'"
    assert re.search(rf"{who} needs {right} on {re.escape(on)}: add an ACL", str(error))


def test_a_producer_reports_missing_permissions_by_topic(guarded: LocalCluster) -> None:
    with Producer(guarded.client_config("bob")) as producer:
        good = [producer.send(MINE, b"1")]
        with pytest.raises(TopicAuthorizationError) as unknown:
            producer.send(THEIRS, b"no").result(timeout=60)
        bad = [producer.send(SEEN, b"no") for _ in range(3)]
        good.append(producer.send(MINE, b"2"))
        assert [future.result(timeout=60).topic for future in good] == [MINE, MINE]
        for future in bad:
            with pytest.raises(TopicAuthorizationError) as caught:
                future.result(timeout=60)
            refused(caught.value, TopicAuthorizationError, "WRITE", f"topic {SEEN!r}")
        refused(unknown.value, TopicAuthorizationError, "WRITE", f"topic {THEIRS!r}")
        assert producer.send(MINE, b"3").result(timeout=60).offset >= 2


def test_an_idempotent_producer_reports_the_missing_write_permission(guarded: LocalCluster) -> None:
    config = {**guarded.client_config("carol"), "enable.idempotence": True}
    with Producer(config) as producer, pytest.raises(ClusterAuthorizationError) as caught:
        producer.send(SEEN, b"no").result(timeout=60)
    on = "a topic (before Kafka 3.0: IDEMPOTENT_WRITE on the cluster)"
    refused(caught.value, ClusterAuthorizationError, "WRITE", on)
    assert str(caught.value).count("needs WRITE") == 1


def test_a_transactional_producer_reports_the_missing_write_permission(
    guarded: LocalCluster,
) -> None:
    config = {**guarded.client_config("bob"), "transactional.id": "bobs-id"}
    with Producer(config) as producer, pytest.raises(TransactionalIdAuthorizationError) as caught:
        producer.init_transactions(timeout=60)
    on = "transactional id 'bobs-id'"
    refused(caught.value, TransactionalIdAuthorizationError, "WRITE", on)


def test_a_consumer_reports_missing_permissions_and_reads_permitted_topics(
    guarded: LocalCluster,
) -> None:
    with Producer(guarded.client_config("bob")) as producer:
        producer.send(MINE, b"more").result(timeout=60)
    config = {**guarded.client_config("bob"), "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(t, 0) for t in (MINE, SEEN, THEIRS)])
        rights: set[tuple[str | None, str | None]] = set()
        values: list[bytes | None] = []
        wanted = {("READ", f"topic {SEEN!r}"), ("READ", f"topic {THEIRS!r}")}
        end = time.monotonic() + 20
        while (rights != wanted or not values) and time.monotonic() < end:
            try:
                values += [record.value for record in consumer.poll(1.0)]
            except TopicAuthorizationError as error:
                rights.add((error.operation, error.resource))
        assert rights == wanted
        assert b"more" in values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("group", ["foreign", "known"])
def test_a_group_member_reports_the_missing_read_permission(
    guarded: LocalCluster, group: str, protocol: str
) -> None:
    config = {**guarded.client_config("bob"), "group.id": group, "group.protocol": protocol}
    with Consumer(config) as consumer:
        consumer.subscribe([MINE])
        with pytest.raises(GroupAuthorizationError) as caught:
            consumer.poll(20)
        refused(caught.value, GroupAuthorizationError, "READ", f"group {group!r}")


def test_a_classic_group_reads_permitted_topics_and_reports_others(guarded: LocalCluster) -> None:
    """Check that the permitted topic is read and committed."""
    with Producer(guarded.client_config("bob")) as producer:
        producer.send(MINE, b"for the group").result(timeout=60)
    config = {**guarded.client_config("bob"), "group.id": "bobs", "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe([MINE, THEIRS])
        refusals, values = 0, []
        end = time.monotonic() + 30
        while not (refusals and b"for the group" in values) and time.monotonic() < end:
            try:
                values += [record.value for record in consumer.poll(1.0)]
            except TopicAuthorizationError as error:
                refused(error, TopicAuthorizationError, "READ", f"topic {THEIRS!r}")
                refusals += 1
        assert refusals
        assert b"for the group" in values
        consumer.commit(timeout=60)


def test_a_kip_848_group_with_an_unauthorized_topic_reads_nothing(guarded: LocalCluster) -> None:
    """Check that a KIP-848 broker rejects the whole subscription, as docs/security.md says."""
    config = {**guarded.client_config("bob"), "group.id": "bobs", "group.protocol": "consumer"}
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([MINE, THEIRS])
        refusals = 0
        end = time.monotonic() + 30
        while refusals < 2 and time.monotonic() < end:
            try:
                assert not consumer.poll(1.0)
            except TopicAuthorizationError:
                refusals += 1
        assert refusals
        assert consumer.assignment() == []
        consumer.subscribe([MINE])
        while not consumer.assignment():
            consumer.poll(1.0)
            assert time.monotonic() < end + 30


def test_lost_records_whose_futures_are_not_checked_are_logged(
    guarded: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Run README's loop without checking the futures: one WARNING counts the lost records."""
    with Producer(guarded.client_config("bob")) as producer:
        for n in range(100):
            producer.send(SEEN, b"%d" % n)
        assert producer.flush(timeout=60) == 0
    told = [r.getMessage() for r in caplog.records if "looked at no result" in r.getMessage()]
    assert sum(int(line.split("] ")[1].split()[0]) for line in told) == 100
    assert "User 'bob' needs WRITE" in told[0]


def test_an_admin_client_reports_missing_permissions_by_topic(guarded: LocalCluster) -> None:
    with Admin(guarded.client_config("bob")) as admin:
        with pytest.raises(TopicAuthorizationError) as caught:
            admin.create_topics([NewTopic("new", 1, 1)], timeout=60)
        refused(caught.value, TopicAuthorizationError, "CREATE", "topic 'new'")
        refused(caught.value.errors["new"], TopicAuthorizationError, "CREATE", "topic 'new'")
        with pytest.raises(TopicAuthorizationError) as caught:
            admin.delete_topics([SEEN], timeout=60)
        refused(caught.value, TopicAuthorizationError, "DELETE", f"topic {SEEN!r}")
        listed = admin.list_topics(timeout=60)  # other modules create topics for bob
        assert {MINE, SEEN} <= {*listed}
        assert THEIRS not in listed


def test_the_inter_broker_listener_requires_authentication(guarded: LocalCluster) -> None:
    """Check R-IN-5: a plaintext inter-broker listener would make every local user a super user."""
    config = {"bootstrap.servers": guarded.inner_servers, "default.api.timeout.ms": 4000}
    with Admin(config) as admin, pytest.raises(KafkaError) as caught:
        admin.create_topics([NewTopic("by-nobody", 1, 1)])
    with Admin(guarded.inner_config()) as allowed:
        assert "by-nobody" not in allowed.list_topics(timeout=60)
    assert "sasl" in str(caught.value).lower()
