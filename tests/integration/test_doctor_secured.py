"""Test `odradek doctor` with real brokers that require TLS, passwords and ACLs."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.doctor_page import check_example
from tests.integration.test_doctor_command import doctor as run_doctor_once
from tests.integration.test_doctor_command import first, wrong
from tests.integration.test_explain_command import listening
from tests.volume import WHOLE

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.admin import AclBinding, ClientQuotaEntity
from odradek.cli.console.properties import read_client_file
from odradek.cli.doctor import environment
from odradek.cli.doctor.findings import STATUSES, Trouble
from odradek.common.config import ADMIN, Config
from odradek.common.errors import KafkaTimeoutError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import Address
from odradek.testing import LocalCluster
from odradek.testing.brokers.front_door import FrontDoor
from odradek.testing.brokers.shared_clusters import SharedClusters

USERS = {"alice": "alice-secret-17", "bob": "bob-secret-23"}
BROKERS = 3 if WHOLE else 1
"""Only `test_a_killed_broker_and_its_partitions_are_reported` (marked `long`) needs three."""
OPTIONS = {
    "brokers": BROKERS,
    "security": "SASL_SSL",
    "mechanisms": ["PLAIN"],
    "users": USERS,
    "acls": True,
    "auto_create_topics": True,
}
WRONG = "not-her-password"
MINE, SEEN, THEIRS = "mine", "seen", "theirs"
ALICE = "User:alice"


@pytest.fixture(autouse=True)
def not_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "in_container", lambda: False)


def doctor(*words: str, timeout: float = 15.0) -> tuple[int, dict[str, Any]]:
    """Run the doctor again until it doesn't report under-replicated partitions.

    On a busy machine a follower, or a broker's metadata about it, is late for some seconds, and the
    doctor reports that correctly.
    """
    deadline = time.monotonic() + 60
    while True:
        status, found = run_doctor_once(*words, timeout=timeout)
        late = any(f["kind"] == Trouble.UNDER_REPLICATED.value for f in found["findings"])
        if not late or time.monotonic() > deadline:
            return status, found
        time.sleep(0.1)


@pytest.fixture(scope="module")
def strict(clusters: SharedClusters) -> LocalCluster:
    """Start a cluster where alice may use `mine` and her group, and only describe `seen`."""
    running = clusters.start(OPTIONS)
    rights = [
        *(
            AclBinding(kind, name, ALICE, "ALL")
            for kind, name in (("TOPIC", MINE), ("GROUP", "board"))
        ),
        *(
            AclBinding(kind, name, ALICE, "DESCRIBE")
            for kind, name in (("TOPIC", SEEN), ("GROUP", "known"))
        ),
        AclBinding("TOPIC", "single", ALICE, "READ"),
        AclBinding("CLUSTER", "kafka-cluster", ALICE, "DESCRIBE"),
        AclBinding("CLUSTER", "kafka-cluster", ALICE, "DESCRIBE_CONFIGS"),
        AclBinding("TOPIC", "__consumer_offsets", ALICE, "DESCRIBE"),
    ]
    with Admin(running.inner_config()) as admin:
        admin.create_acls(rights, timeout=30)
        admin.create_topics([NewTopic(t, 3, BROKERS) for t in (MINE, SEEN, THEIRS)], timeout=30)
    # Returns once every broker knows this topic, and so the ACLs and topics created before it.
    running.create_topic("single", partitions=3, replication_factor=1)
    return running


@pytest.fixture
def settings(strict: LocalCluster, tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that writes a user's settings, with changes, to a file."""

    def made(user: str = "alice", **changes: str | None) -> list[str]:
        given = {name.replace("_", "."): value for name, value in changes.items()}
        login = {"sasl.username": user, "sasl.password": USERS[user]}
        found = {**strict.client_config(user), "sasl.jaas.config": None, **login, **given}
        lines = [f"{k}={v}" for k, v in found.items() if v is not None and k != "bootstrap.servers"]
        file = tmp_path / "client.properties"
        file.write_text("\n".join(lines))
        return ["--command-config", str(file)]

    return made


Settings = Callable[..., list[str]]


def test_no_problem_is_reported_with_full_permissions(
    strict: LocalCluster, settings: Settings
) -> None:
    status, found = doctor(
        strict.bootstrap_servers, "--topic", MINE, "--group", "board", *settings()
    )
    assert status == 0, found["findings"]
    steps = {step["step"]: step for step in found["steps"]}
    assert {step["state"] for step in found["steps"]} == {"ok"}
    assert steps["TLS"]["detail"].startswith("the certificate expires in ")
    assert steps["login"]["detail"] == "PLAIN"
    assert float(steps["clocks"]["detail"].partition(" ")[0]) < 2.0, "one machine, one clock"
    assert steps["permissions"]["detail"].startswith(
        f"{MINE}: ALTER, ALTER_CONFIGS, CREATE, DELETE"
    )


@pytest.mark.parametrize(
    ("changes", "kind", "what", "cure"),
    [
        ({"sasl_password": WRONG}, Trouble.SASL, "Authentication with ", "sasl.password"),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, Trouble.SASL, "SCRAM-SHA-256", "PLAIN"),
        ({"security_protocol": "SSL", "sasl_mechanism": None, "sasl_username": None,
          "sasl_password": None}, Trouble.SASL, "requires SASL", "SASL_SSL"),
        ({"security_protocol": "SASL_PLAINTEXT"}, Trouble.TLS, "TLS", "SASL_SSL"),
        ({"ssl_truststore_location": None, "ssl_truststore_type": None}, Trouble.TLS,
         "certificate isn't trusted", "ssl.ca.location"),
    ],
    ids=["password", "mechanism", "no SASL", "no TLS", "no trust"],
)  # fmt: skip
def test_wrong_security_settings_are_reported_with_a_remedy(
    strict: LocalCluster,
    settings: Settings,
    changes: dict[str, str | None],
    kind: Trouble,
    what: str,
    cure: str,
) -> None:
    status, found = doctor(strict.bootstrap_servers, *settings(**changes))
    assert status == STATUSES[kind], found["findings"]
    assert what in first(found)["what"], found["first"]
    assert cure in first(found)["cure"]
    assert wrong(found) == ["TLS" if kind is Trouble.TLS else "login"]
    assert "secret-17" not in json.dumps(found)


def test_a_cluster_with_another_id_is_reported(strict: LocalCluster, settings: Settings) -> None:
    words = ("--config", "cluster.id.expected=theirs", *settings())
    status, found = doctor(strict.bootstrap_servers, *words)
    assert status == STATUSES[Trouble.CLUSTER]
    assert f"belongs to cluster {strict.cluster_id}, but cluster theirs is" in first(found)["what"]


def test_tls_to_a_plaintext_port_is_reported(strict: LocalCluster, settings: Settings) -> None:
    status, found = doctor(strict.inner_servers.partition(",")[0], *settings())
    assert status == STATUSES[Trouble.TLS]
    assert "plaintext" in first(found)["what"]


def test_a_certificate_for_another_name_is_reported(
    strict: LocalCluster, settings: Settings
) -> None:
    door = FrontDoor("127.0.0.77")
    door.start()
    try:
        host, _, port = strict.broker_addresses[0].rpartition(":")
        door.lead_to([Address(host, int(port))])
        status, found = doctor(str(door.address), *settings())
    finally:
        door.close()
    assert status == STATUSES[Trouble.TLS]
    assert "certificate isn't valid for" in first(found)["what"]
    assert "subjectAltName" in first(found)["cure"]


@contextmanager
def certificate(strict: LocalCluster, starts: float, ends: float) -> Iterator[str]:
    """Serve a certificate of the cluster's authority that is valid for these days."""
    now = datetime.now(UTC)
    identity = strict.authority.issue(
        "other",
        hosts=["127.0.0.1"],
        starts=now + timedelta(days=starts),
        ends=now + timedelta(days=ends),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.both)

    def serve(sock: Any) -> None:
        with context.wrap_socket(sock, server_side=True) as tls:
            tls.recv(1)

    with listening(lambda sock: threading.Thread(target=_quietly, args=(serve, sock)).start()) as a:
        yield a


def _quietly(serve: Callable[[Any], None], sock: Any) -> None:
    try:
        serve(sock)
    except OSError:
        return


def test_an_expired_certificate_is_reported(strict: LocalCluster, settings: Settings) -> None:
    with certificate(strict, -3, -2) as address:
        status, found = doctor(address, *settings(), timeout=6.0)
    assert status == STATUSES[Trouble.TLS]
    assert "the broker's certificate has expired" in first(found)["what"]
    assert "Renew the broker's certificate" in first(found)["cure"]


def test_the_expiration_time_of_a_certificate_is_read_from_the_broker(
    strict: LocalCluster, settings: Settings
) -> None:
    with certificate(strict, -3, 3.5) as address:
        file = Path(settings()[1])
        config = Config(ADMIN, {**read_client_file(file, ADMIN), "bootstrap.servers": address})
        ends = environment.certificates(config, [address, "127.0.0.1:1"])
    assert ends is not None
    assert list(ends) == [address]
    assert 3.0 < (ends[address] - time.time()) / 86400 < 3.6


def test_missing_permissions_for_topics_are_reported(
    strict: LocalCluster, settings: Settings
) -> None:
    status, found = doctor(strict.bootstrap_servers, "--topic", SEEN, *settings())
    assert status == STATUSES[Trouble.RIGHTS] == 20
    assert first(found)["what"] == (
        f"User 'alice' may describe topic {SEEN}, but not READ or WRITE it."
    )
    status, found = doctor(strict.bootstrap_servers, "--topic", THEIRS, *settings())
    assert status == STATUSES[Trouble.RIGHTS]
    assert "isn't authorized for DESCRIBE on topic 'theirs'" in first(found)["what"]
    assert "odradek acls create" in first(found)["cure"]


def test_missing_permissions_for_groups_are_reported(
    strict: LocalCluster, settings: Settings
) -> None:
    # Describing a group needs less permission than joining it.
    for group, right in (("known", "READ"), ("nobodys", "DESCRIBE")):
        status, found = doctor(strict.bootstrap_servers, "--group", group, *settings())
        assert status == STATUSES[Trouble.RIGHTS], found["findings"]
        assert f"isn't authorized for {right} on group '{group}'" in first(found)["what"]


def test_the_lag_of_a_group_without_members_is_reported(
    strict: LocalCluster, settings: Settings
) -> None:
    config = strict.client_config("alice")
    with Producer(config) as producer:
        for n in range(60):
            producer.send(MINE, b"x", partition=n % 3)
    with Consumer({**config, "group.id": "board", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([MINE])
        read = 0
        while read < 60:
            read += len(consumer.poll(5.0))
        words = (strict.bootstrap_servers, "--group", "board", *settings())
        steps = {step["step"]: step for step in doctor(*words)[1]["steps"]}
        assert steps["group"]["detail"].startswith("Stable, 1 member; ")
    with Producer(config) as producer:
        for _ in range(5):
            producer.send(MINE, b"x", partition=1)
    words = (strict.bootstrap_servers, "--topic", MINE, "--group", "board", *settings())
    status, found = doctor(*words)
    assert status == 0, found["findings"]
    (note,) = found["findings"]
    assert note["what"] == ("Group board has a lag of 5 records, but no members to read them.")


def test_the_doctor_creates_no_topic_with_auto_create_enabled(strict: LocalCluster) -> None:
    start, words = strict.inner_servers, []
    for name, value in strict.inner_config().items():
        if name != "bootstrap.servers":
            words += ["--config", f"{name}={value}"]
    for _ in range(2):
        status, found = doctor(start, "--topic", "unheard-of", "--group", "board", *words)
        assert status == STATUSES[Trouble.TOPIC], found["findings"]
        assert first(found)["what"].startswith("Topic unheard-of doesn't exist")


@pytest.mark.parametrize("allowed", [True, False])
def test_brokers_auto_create_topics_if_the_client_allows_it(
    strict: LocalCluster, allowed: bool
) -> None:
    """Check allow.auto.create.topics in both clients (KIP-361); admin clients never allow it."""
    config = {**strict.inner_config(), "allow.auto.create.topics": allowed}
    sent, read = f"sent-{allowed}", f"read-{allowed}"
    with Producer(config, max_block_ms=30_000 if allowed else 3000) as producer:
        future = producer.send(sent, b"x")
        if allowed:
            assert future.result(timeout=30).offset == 0
        else:
            with pytest.raises(KafkaTimeoutError):
                future.result(timeout=30)
    with Consumer(config) as consumer, Admin(strict.inner_config()) as admin:
        consumer.assign([TopicPartition(read, 0)])
        deadline = time.monotonic() + 30
        there: list[str] = []
        with suppress(UnknownTopicOrPartitionError):
            for _ in range(3):
                consumer.poll(1.0)
        while time.monotonic() < deadline:
            there = admin.list_topics()
            if (read in there) is allowed:
                break
    assert (sent in there, read in there) == (allowed, allowed)


def test_the_page_shows_the_output_for_secured_brokers(
    strict: LocalCluster, settings: Settings
) -> None:
    """Check the examples of docs/doctor.md that need a real broker."""
    start = strict.bootstrap_servers

    def asked(name: str, *words: str, **changes: str | None) -> None:
        given = settings(**changes)
        told = {given[1]: "client.properties", start: "kafka.example:9093"}
        check_example(name, [start, *words, *given], told)

    asked("no tls", security_protocol="SASL_PLAINTEXT")
    asked("password", sasl_password=WRONG)
    asked("trust", ssl_truststore_location=None, ssl_truststore_type=None)
    asked("permissions", "--topic", SEEN)


def set_quota(strict: LocalCluster, entity: ClientQuotaEntity, **quotas: float | None) -> None:
    with Admin(strict.inner_config()) as admin:
        admin.alter_client_quotas({entity: quotas}, timeout=30)


def test_a_quota_that_does_not_throttle_is_noted_without_a_problem(
    strict: LocalCluster, settings: Settings
) -> None:
    for rate, said in (
        (1048576, ["There is a quota for user 'alice': consumer_byte_rate 1048576."]),
        (None, []),
    ):
        set_quota(strict, ClientQuotaEntity(user="alice"), consumer_byte_rate=rate)
        status, found = doctor(strict.bootstrap_servers, *settings())
        assert (status, [f["what"] for f in found["findings"]]) == (0, said)


def test_an_exceeded_request_quota_is_reported(strict: LocalCluster, settings: Settings) -> None:
    """Set a quota of the brokers' processor time that each request exceeds."""
    entity = ClientQuotaEntity(client_id="odradek-doctor")
    set_quota(strict, entity, request_percentage=0.0001)
    try:
        status, found = doctor(strict.bootstrap_servers, *settings())
        for _ in range(5):  # brokers measure for a while before they throttle
            if status:
                break
            status, found = doctor(strict.bootstrap_servers, *settings())
    finally:
        set_quota(strict, entity, request_percentage=None)
    assert status == STATUSES[Trouble.THROTTLED], found["findings"]
    assert "throttles this client" in first(found)["what"]


@pytest.mark.long  # shorter tests: test_doctor_command.py (a partition without a leader)
def test_a_killed_broker_and_its_partitions_are_reported(
    strict: LocalCluster, settings: Settings
) -> None:
    """Kill a broker: its address fails, then its partitions have no leader or fewer replicas."""
    with Admin(strict.inner_config()) as admin:
        leaders = [p.leader for p in admin.describe_topics("single")["single"].partitions]
    gone = leaders[0]
    assert gone is not None
    lost = leaders.count(gone)  # 2 if a broker was slow to join when the topic was created
    words = f"{lost} of 3 partitions of topic single {'has' if lost == 1 else 'have'} no leader"
    strict.kill(gone)
    try:
        status, found = run_doctor_once(strict.bootstrap_servers, "--topic", "single", *settings())
        assert status in (STATUSES[Trouble.ADVERTISED], STATUSES[Trouble.LEADERLESS])
        deadline = time.monotonic() + 60
        while status != STATUSES[Trouble.LEADERLESS] and time.monotonic() < deadline:
            status, found = run_doctor_once(
                strict.bootstrap_servers, "--topic", "single", *settings()
            )
        assert first(found)["what"].startswith(words)
        assert f"(missing: {gone})" in first(found)["cure"]
        status, found = run_doctor_once(strict.bootstrap_servers, "--topic", MINE, *settings())
        assert status == STATUSES[Trouble.UNDER_REPLICATED] == 23
        assert first(found)["what"].startswith(f"Broker {gone} should hold replicas")
    finally:
        strict.start(gone)
