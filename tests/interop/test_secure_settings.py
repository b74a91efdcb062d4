"""Use settings for Java and for librdkafka unchanged, with these clients and with Odradek.

Three small clusters have all security settings: each mechanism over TLS and in plaintext, client
certificates, stores of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.integration.test_readme import output, snippets
from tests.interop.other_client import Row, read_all, settings, write_all
from tests.interop.our_client import read

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.types import TopicPartition
from odradek.runtime.properties import read_properties
from odradek.testing import LocalCluster
from odradek.testing.brokers.authority import Kind
from odradek.testing.brokers.security import MECHANISMS
from odradek.testing.brokers.shared_clusters import SharedClusters

USERS = {"alice": "alice-password", "bob": "bob-secret"}
"""Users and passwords; docs/guide.md shows the first one."""
CLUSTERS: dict[str, dict[str, Any]] = {
    name: {"brokers": 1, "security": name, "users": USERS, **more}
    for name, more in (
        ("SASL_SSL", {"mechanisms": MECHANISMS[:4]}),
        ("SASL_PLAINTEXT", {"mechanisms": MECHANISMS[:4]}),
        ("SSL", {"mutual_tls": "required"}),
    )
}
WAYS: list[tuple[str, str | None, Kind]] = [
    ("SASL_SSL", "PLAIN", "PEM"),
    ("SASL_SSL", "SCRAM-SHA-256", "PKCS12"),
    ("SASL_SSL", "SCRAM-SHA-512", "JKS"),
    ("SASL_SSL", "OAUTHBEARER", "PEM"),
    ("SASL_PLAINTEXT", "PLAIN", "PEM"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256", "PEM"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512", "PEM"),
    ("SASL_PLAINTEXT", "OAUTHBEARER", "PEM"),
    ("SSL", None, "PEM"),
    ("SSL", None, "PKCS12"),
    ("SSL", None, "JKS"),
]
JAVA_WRITES = frozenset(
    {("SASL_SSL", "OAUTHBEARER", "PEM"), ("SSL", None, "PKCS12"), ("SSL", None, "JKS"),
     ("SASL_PLAINTEXT", "SCRAM-SHA-512", "PEM")}
)  # fmt: skip
"""Settings with which Java writes: each kind of store once, since a JVM takes seconds to start."""
OFTEN = {*WAYS[:3], ("SSL", None, "PKCS12")}
"""Each mechanism over TLS, and mutual TLS.

test_secure_recovery.py tests SASL without TLS, and test_secure_oauth.py tests tokens.
"""


@pytest.fixture(scope="module")
def secured(clusters: SharedClusters) -> Callable[[str], LocalCluster]:
    return lambda name: clusters.shared(CLUSTERS[name])


def values(config: Mapping[str, str], topic: str, count: int, **more: str) -> list[str]:
    """Return the values in the topic's only partition; with a group in `more`, read as a member."""
    given = {**config, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with Consumer({**given, **more}) as consumer:
        if more:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0)])
        return [(r.value or b"").decode() for r in read(consumer, count)]


@pytest.mark.parametrize(
    ("protocol", "mechanism", "stores"),
    [way if way in OFTEN else pytest.param(*way, marks=pytest.mark.long) for way in WAYS],
)
def test_settings_of_other_clients_work_unchanged(
    secured: Callable[[str], LocalCluster],
    topic: str,
    protocol: str,
    mechanism: str | None,
    stores: Kind,
) -> None:
    cluster = secured(protocol)
    cluster_file = cluster.java_properties("bob", mechanism, stores)
    of_java = read_properties(cluster_file)
    of_librdkafka = cluster.librdkafka_config("bob", mechanism)
    expected = ["by librdkafka", "ours: java's file", "ours: librdkafka's names"]

    with Admin(of_java) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)], timeout=30)
    write_all(of_librdkafka, topic, [Row(None, b"by librdkafka", (), 1)])
    with Producer(of_java) as producer:
        producer.send(topic, expected[1].encode(), timestamp_ms=1).result(timeout=60)
    with Producer({**of_librdkafka, "transactional.id": topic}) as producer:
        producer.init_transactions(timeout=30)
        with producer.transaction():
            producer.send(topic, expected[2].encode(), timestamp_ms=1)
    by_java = (protocol, mechanism, stores) in JAVA_WRITES
    if by_java:
        cluster.run_tool(
            "org.apache.kafka.tools.ConsoleProducer",
            ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic,
             "--command-config", str(cluster_file)],
            given=b"by java\n",
        )  # fmt: skip
        expected.append("by java")
    assert values(of_java, topic, len(expected)) == expected
    for group in ("classic", "consumer") if by_java else ("consumer",):
        member = {"group.id": f"{topic}-{group}", "group.protocol": group}
        assert values(of_librdkafka, topic, len(expected), **member) == expected
    found = read_all(of_librdkafka, topic, 1)[0]
    assert [(row.value or b"").decode() for row in found] == expected


def test_settings_show_no_password(secured: Callable[[str], LocalCluster]) -> None:
    """Check that only the owner can read the file, and that a client shows no password."""
    cluster = secured("SASL_SSL")
    file = cluster.java_properties("alice", "SCRAM-SHA-512", "JKS")
    assert file.stat().st_mode & 0o077 == 0
    with Admin(read_properties(file)) as admin:
        admin.list_topics(timeout=60)
        said = f"{admin!r} {admin.explain()}"
    assert USERS["alice"] in file.read_text()
    assert USERS["alice"] not in said
    assert settings(cluster.librdkafka_config("alice"))["sasl.username"] == "alice"


def test_the_guides_snippet_for_a_secured_cluster_works(
    secured: Callable[[str], LocalCluster],
) -> None:
    cluster = secured("SASL_SSL")
    cluster.create_topic("flights")
    store = cluster.authority.truststore("PKCS12", "truststore-password")
    text = snippets()["secured"]
    for printed, real in (
        ("localhost:9093", cluster.bootstrap_servers),
        ('"truststore.p12"', repr(str(store))),
    ):
        assert printed in text
        text = text.replace(printed, real)
    assert output(text) == "0\n"
