"""Test GSSAPI with a real key distribution centre and a real broker, both on loopback.

The tests need the programs of MIT Kerberos and the package `gssapi`, which is compiled against its
library; without them they are skipped, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tests import kerberos_realm
from tests.interop.our_client import read
from tests.kerberos_realm import REALM, Realm

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.common.errors import TokenError
from odradek.testing import LocalCluster

LACKING = "; ".join(
    [
        *([kerberos_realm.missing()] if kerberos_realm.missing() else []),
        *([] if find_spec("gssapi") else ["the package gssapi (odradek[gssapi])"]),
    ]
)
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"not on this machine: {LACKING}")
PATIENCE = 60.0
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    patch = pytest.MonkeyPatch()
    with Realm(tmp_path_factory.mktemp("realm")) as running:
        patch.setenv("KRB5_CONFIG", str(running.conf))
        patch.setenv("KRB5CCNAME", f"FILE:{running.folder}/no-tickets")
        try:
            yield running
        finally:
            patch.undo()


@pytest.fixture(scope="module")
def cluster(realm: Realm) -> Iterator[LocalCluster]:
    keytab = realm.keytab("kafka/localhost")
    jaas = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="kafka/localhost@{REALM}";'
    )
    prefix = "listener.name.client."
    with LocalCluster(
        brokers=1,
        security="SASL_PLAINTEXT",
        mechanisms=["GSSAPI"],
        config={
            f"{prefix}gssapi.sasl.jaas.config": jaas,
            f"{prefix}sasl.kerberos.service.name": "kafka",
        },
        java_options=[f"-Djava.security.krb5.conf={realm.conf}"],
    ) as running:
        # The broker's advertised address is only known now.
        for address in running.broker_addresses:
            realm.keytab(f"kafka/{address.rpartition(':')[0]}")
        yield running


def settings(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    port = cluster.bootstrap_servers.rpartition(":")[2]
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "default.api.timeout.ms": int(PATIENCE * 1000),
        **more,
    }


def test_records_are_sent_and_read_with_a_keytab(cluster: LocalCluster, realm: Realm) -> None:
    """Log in with Java's settings and with librdkafka's; no kinit is needed."""
    keytab = realm.keytab("alice")
    jaas = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="alice@{REALM}" serviceName="kafka";'
    )
    javas = settings(cluster, **{"sasl.jaas.config": jaas})
    with Admin(javas) as admin:
        admin.create_topics([NewTopic("tickets", 1)])
    with Producer(javas) as producer:
        producer.send("tickets", b"one").result(PATIENCE)
    theirs = settings(
        cluster,
        **{
            "sasl.kerberos.keytab": str(keytab),
            "sasl.kerberos.principal": f"alice@{REALM}",
            "auto.offset.reset": "earliest",
        },
    )
    with Consumer(theirs) as consumer:
        consumer.assign([TopicPartition("tickets", 0)])
        assert [record.value for record in read(consumer)] == [b"one"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"kinit"),
        ({"sasl.kerberos.keytab": "nowhere.keytab"}, r"sasl\.kerberos\.keytab"),
        ({"sasl.kerberos.service.name": "other", "good": True}, r"sasl\.kerberos\.service\.name"),
    ],
    ids=["no ticket", "no keytab", "wrong service"],
)
def test_the_error_of_a_wrong_setting_is_raised_by_every_call_at_once(
    cluster: LocalCluster, realm: Realm, options: dict[str, Any], said: str
) -> None:
    options = dict(options)
    if options.pop("good", False):
        options["sasl.kerberos.keytab"] = str(realm.keytab("bob"))
    with Admin(settings(cluster, **options)) as admin:
        began = time.monotonic()
        with pytest.raises(TokenError, match=said):
            admin.describe_cluster()
        assert time.monotonic() - began < 5
