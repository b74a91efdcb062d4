"""Test that `odradek doctor` reports the first problem, for each kind of fault on loopback.

`test_doctor_secured.py` tests misconfigurations that need real brokers.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.doctor_page import LOOPBACK, PAGE, SECURED, check_example, example_names
from tests.integration.test_explain_command import listening
from tests.proxy_server import ProxyServer
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek import Consumer, Producer
from odradek.cli import build
from odradek.cli.doctor import environment
from odradek.cli.doctor.findings import STATUSES, Trouble
from odradek.common.types import Address
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.testing import FakeCluster

COMMAND = Path(sys.executable).parent / "odradek"
SENT = 40


@pytest.fixture(autouse=True)
def not_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend not to run in a container, because there the messages differ."""
    monkeypatch.setattr(environment, "in_container", lambda: False)


def doctor(*words: str, timeout: float = 15.0) -> tuple[int, dict[str, Any]]:
    """Run the command and return its exit status and JSON output."""
    done = CliRunner().invoke(build("doctor"), ["doctor", *words, "--json", f"--timeout={timeout}"])
    found = json.loads(done.stdout)
    assert found["status"] == done.exit_code, done.output
    return done.exit_code, found


def text(*words: str) -> str:
    """Run the doctor and return its text output."""
    return CliRunner().invoke(build("doctor"), ["doctor", *words]).stdout


def first(found: dict[str, Any]) -> dict[str, Any]:
    """Return the most severe finding, which must be complete."""
    finding: dict[str, Any] = found["findings"][0]
    assert finding["grave"]
    assert finding["what"] == found["first"]
    assert all(finding[name].endswith((".", ")")) for name in ("what", "why")), finding
    assert finding["cure"]
    return finding


def wrong(found: dict[str, Any]) -> list[str]:
    """Return the names of the failed steps in the doctor's document."""
    return [step["step"] for step in found["steps"] if step["state"] == "wrong"]


@contextmanager
def changed(
    fake: FakeCluster, change: Callable[[SimulatedBroker], object]
) -> Iterator[list[SimulatedBroker]]:
    """Apply a change to each simulated broker, in its own thread."""
    cluster = fake._cluster
    fake._call(lambda: [change(broker) for broker in cluster.brokers.values()])
    yield list(cluster.brokers.values())


def advertise(fake: FakeCluster, address: Callable[[int], Address]) -> None:
    """Let the brokers advertise other addresses, as advertised.listeners does."""

    def elsewhere(broker: SimulatedBroker) -> None:
        broker.address = address(broker.id)

    with changed(fake, elsewhere):
        pass


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3, topics={"flights": 6}) as running:
        yield running


@pytest.fixture
def unused_address() -> Iterator[str]:
    """Return an address where nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"localhost:{bound.getsockname()[1]}"


def test_no_problem_is_reported_for_a_healthy_cluster(fake: FakeCluster) -> None:
    clients = logging.getLogger("odradek")
    before = clients.level
    status, found = doctor(fake.bootstrap_servers)
    assert clients.level == before  # a program that calls the command keeps its log level
    assert (status, found["findings"], found["kind"]) == (0, [], None)
    assert found["first"].startswith("No problems found")
    assert wrong(found) == []
    said = text(fake.bootstrap_servers)
    assert said.splitlines()[0] == found["first"]
    assert "3 of 3 answer" in said


def test_the_problem_is_printed_before_any_table(unused_address: str) -> None:
    lines = text(unused_address).splitlines()
    assert lines[0] == (
        f"Nothing listens at {unused_address}: no broker runs there, or the host or port is wrong."
    )
    assert lines[2].startswith("Why it matters: ")
    assert lines[4].startswith("What to do: Start the broker. If it runs in a container, publish")
    table = next(n for n, line in enumerate(lines) if line.split()[:2] == ["step", "seen"])
    assert table > 4


def test_an_unknown_host_name_is_reported() -> None:
    status, found = doctor("no-such-host.invalid:9092")
    assert status == STATUSES[Trouble.NAME] == 10
    assert first(found)["what"] == (
        "This machine can't resolve the host name no-such-host.invalid (from "
        "no-such-host.invalid:9092)."
    )
    assert wrong(found) == ["name"]


def test_an_unknown_host_docker_internal_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "in_container", lambda: True)
    status, found = doctor("host.docker.internal:9092")
    if status == 0:
        pytest.skip("this machine knows the name")
    assert "--add-host host.docker.internal:host-gateway" in first(found)["cure"]


def test_localhost_in_a_container_is_explained(
    monkeypatch: pytest.MonkeyPatch, unused_address: str
) -> None:
    monkeypatch.setattr(environment, "in_container", lambda: True)
    status, found = doctor(unused_address)
    assert status == STATUSES[Trouble.NETWORK] == 11
    what = first(found)["what"]
    assert "In a container, localhost is the container itself, not the machine" in what
    port = unused_address.rpartition(":")[2]
    assert f"host.docker.internal:{port}" in first(found)["cure"]
    assert wrong(found) == ["connection"]


def test_connection_attempts_without_a_response_are_reported() -> None:
    """Connect to a listener with a full queue, which drops SYN packets as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(address)
        status, found = doctor(f"127.0.0.1:{address[1]}", timeout=4.0)
        for sock in waiting:
            sock.close()
    assert status == STATUSES[Trouble.NETWORK]
    assert "connection attempts get no reply: a firewall" in first(found)["what"]
    assert "(firewall, security group, VPN)" in first(found)["cure"]


def answer(reply: bytes) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(reply)

    return serve


@pytest.mark.parametrize(
    ("serve", "kind", "words"),
    [
        (answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Trouble.PROTOCOL, "HTTP"),
        (answer(b"SSH-2.0-OpenSSH_9.6\r\n"), Trouble.PROTOCOL, "another service listens there"),
        (answer(b"\x15\x03\x03\x00\x02\x02\x46"), Trouble.TLS, "TLS"),
        (lambda sock: sock.close(), Trouble.BROKER, "closes connections before it answers"),
    ],
    ids=["http", "ssh", "tls", "closes"],
)
def test_a_port_of_another_service_is_reported(
    serve: Callable[[socket.socket], None], kind: Trouble, words: str
) -> None:
    with listening(serve) as address:
        status, found = doctor(address, timeout=6.0)
    assert status == STATUSES[kind], found["findings"]
    assert words in first(found)["what"]


def test_a_port_that_accepts_and_never_answers_is_reported() -> None:
    with listening() as address:
        status, found = doctor(address, timeout=4.0)
    assert status == STATUSES[Trouble.BROKER]
    assert "accepts connections but never answers" in first(found)["what"]
    assert "security.protocol" in first(found)["cure"]


def test_a_timeout_that_is_too_short_is_reported(fake: FakeCluster) -> None:
    status, found = doctor(fake.bootstrap_servers, timeout=0.0)
    assert status == STATUSES[Trouble.OTHER] == 1
    assert "didn't answer before the timeout" in first(found)["what"]


def test_the_address_whose_check_got_further_is_reported_first(unused_address: str) -> None:
    with listening(answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        status, found = doctor(f"{unused_address},{address}", timeout=6.0)
    assert status == STATUSES[Trouble.PROTOCOL]
    assert [f["kind"] for f in found["findings"]] == ["protocol", "network"]


def test_a_proxy_that_refuses_the_connection_is_reported(fake: FakeCluster) -> None:
    with ProxyServer(refusal=403) as proxy:
        words = ("--config", f"proxy.url=http://127.0.0.1:{proxy.port}")
        status, found = doctor(fake.bootstrap_servers, *words, timeout=6.0)
    assert status == STATUSES[Trouble.PROXY] == 12
    assert " can't be reached through the proxy: " in first(found)["what"]
    assert "allow connections" in first(found)["cure"]


def test_brokers_without_a_common_api_version_are_reported(fake: FakeCluster) -> None:
    """Offer only versions of Produce that this client doesn't support."""

    def newer(broker: SimulatedBroker) -> None:
        broker.versions = {**broker.spoken, ProduceRequest.API_KEY: (90, 99)}

    with changed(fake, newer):
        status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.PROTOCOL] == 15
    assert "have no version in common of a required API: " in first(found)["what"]
    assert "Produce" in first(found)["what"]
    assert wrong(found) == ["Kafka's protocol"]


# Advertised listeners


def test_brokers_that_advertise_localhost_are_reported(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in a container with brokers that advertise localhost, a common mistake in tutorials."""
    advertise(fake, lambda i: Address("localhost", 1 + i))
    port = fake.bootstrap_servers.rpartition(":")[2]
    monkeypatch.setattr(environment, "in_container", lambda: True)
    # Use a name of this machine that isn't localhost, like the name of a service.
    host = socket.gethostname()
    monkeypatch.setattr("odradek.runtime.resolver.look_up", _also(host))
    status, found = doctor(f"{host}:{port}")
    assert status == STATUSES[Trouble.ADVERTISED] == 17
    assert first(found)["what"] == (
        f"The cluster answers at {host}:{port}, but sends clients on to localhost:2, and "
        "localhost is this container, not the broker's machine."
    )
    assert "advertised.listeners" in first(found)["why"]
    assert f"PLAINTEXT://{host}:{port}" in first(found)["cure"]
    assert "KAFKA_ADVERTISED_LISTENERS" in first(found)["cure"]
    assert wrong(found) == ["brokers' addresses"]


def _also(host: str) -> Callable[[str, int], list[str]]:
    def look_up(name: str, port: int) -> list[str]:
        return ["127.0.0.1"] if name in (host, "localhost") else []

    return look_up


def test_brokers_that_advertise_unknown_names_are_reported(fake: FakeCluster) -> None:
    advertise(fake, lambda i: Address(f"kafka-{i}.invalid", 29092))
    status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.ADVERTISED]
    assert first(found)["what"] == (
        f"The cluster answers at {fake.bootstrap_servers}, but sends clients on to "
        "kafka-1.invalid:29092, a host name that this machine can't resolve."
    )


def test_brokers_that_advertise_closed_ports_are_reported(fake: FakeCluster) -> None:
    advertise(fake, lambda i: Address("127.0.0.1", 1 + i))
    status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.ADVERTISED]
    assert first(found)["what"] == (
        f"The cluster answers at {fake.bootstrap_servers}, but sends clients on to 127.0.0.1:2. "
        "From this machine, nothing listens there."
    )


def test_one_unreachable_broker_of_three_is_reported(fake: FakeCluster) -> None:
    dead = fake.addresses[2]
    fake.kill(2)
    status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.ADVERTISED]
    assert (
        f"1 of 3 brokers can't be reached from this machine: broker 2 at {dead}"
        in (first(found)["what"])
    )


def test_brokers_that_advertise_the_same_address_are_reported(fake: FakeCluster) -> None:
    shared = Address("127.0.0.1", int(fake.addresses[1].rpartition(":")[2]))
    advertise(fake, lambda _: shared)
    status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.ADVERTISED]
    assert f"Brokers 1, 2, 3 all advertise the same address, {shared}." in first(found)["what"]


# Clusters, topics, groups


def test_an_unexpected_cluster_id_is_reported(fake: FakeCluster) -> None:
    words = ("--config", "cluster.id.expected=theirs")
    status, found = doctor(fake.bootstrap_servers, *words)
    assert status == STATUSES[Trouble.CLUSTER] == 18
    assert "belongs to cluster fake-cluster-0001, but cluster theirs is" in first(found)["what"]


def test_addresses_of_two_clusters_are_reported(fake: FakeCluster) -> None:
    with FakeCluster(brokers=1, cluster_id="another") as other:
        status, found = doctor(f"{fake.bootstrap_servers},{other.bootstrap_servers}")
    assert status == STATUSES[Trouble.CLUSTER]
    assert "belongs to cluster" in first(found)["what"]


def test_a_metadata_response_without_brokers_is_reported(fake: FakeCluster) -> None:
    fake._call(lambda: fake._cluster.answer_empty_brokers(True))
    status, found = doctor(fake.bootstrap_servers, timeout=3.0)
    assert status == STATUSES[Trouble.BROKER]
    assert "returned no cluster metadata: the response contains no brokers" in first(found)["what"]


def test_a_missing_topic_is_reported_with_similar_names(fake: FakeCluster) -> None:
    status, found = doctor(fake.bootstrap_servers, "--topic", "Flihgts", "--topic", "flights")
    assert status == STATUSES[Trouble.TOPIC] == 19
    assert first(found)["what"] == "Topic Flihgts doesn't exist (did you mean flights?)."
    assert "odradek topics create Flihgts" in first(found)["cure"]


def test_a_partition_without_a_leader_is_reported(fake: FakeCluster) -> None:
    fake.create_topic("single", partitions=3, replication_factor=1)
    fake.kill(fake.leader("single", 1))
    deadline = time.monotonic() + 30
    while fake.leader("single", 1) >= 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.LEADERLESS] == 21
    assert first(found)["what"] == "1 of 3 partitions of topic single has no leader (1)."
    assert "(missing: 2)" in first(found)["cure"]
    kinds = [f["kind"] for f in found["findings"]]
    assert kinds == sorted(kinds, key=lambda kind: STATUSES[Trouble(kind)])
    assert "under-replicated" in kinds


def test_a_group_without_committed_offsets_is_explained(fake: FakeCluster) -> None:
    """Explain auto.offset.reset to a user whose consumer returns no records."""
    with Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer:
        for _ in range(SENT):
            producer.send("flights", b"x")
    words = ("--topic", "flights", "--group", "board")
    status, found = doctor(fake.bootstrap_servers, *words)
    assert status == 0, "no problem"
    (note,) = found["findings"]
    assert not note["grave"]
    assert "Group board has no committed offsets, so a new consumer starts where " in note["what"]
    assert f"{SENT} records already exist" in note["what"]
    assert "auto.offset.reset=earliest" in note["cure"]
    settings = {"bootstrap.servers": fake.bootstrap_servers, "group.id": "board"}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        read = 0
        while read < SENT:
            read += len(consumer.poll(5.0))
        consumer.commit()
    status, found = doctor(fake.bootstrap_servers, *words)
    assert (status, found["findings"]) == (0, [])
    with Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer:
        for _ in range(7):
            producer.send("flights", b"x", partition=3)
    status, found = doctor(fake.bootstrap_servers, *words)
    (note,) = found["findings"]
    assert note["what"] == ("Group board has a lag of 7 records, but no members to read them.")
    assert not note["grave"]


def test_a_group_without_a_coordinator_is_reported(fake: FakeCluster) -> None:
    """Test the result of the default offsets.topic.replication.factor with only one broker."""
    fake.refuse("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=None)
    status, found = doctor(fake.bootstrap_servers, "--group", "board", timeout=3.0)
    assert status == STATUSES[Trouble.GROUP] == 22
    assert "No coordinator answers for group board" in first(found)["what"]
    assert "offsets.topic.replication.factor" in first(found)["cure"]


def test_throttling_by_the_brokers_is_reported(fake: FakeCluster) -> None:
    def slow(broker: SimulatedBroker) -> None:
        broker.throttle = 0.4

    with changed(fake, slow):
        status, found = doctor(fake.bootstrap_servers)
    assert status == STATUSES[Trouble.THROTTLED] == 24
    assert "delays its requests by 0.4 s" in first(found)["what"]


# docs/doctor.md


def test_every_example_and_exit_status_of_the_page_is_tested() -> None:
    assert sorted(example_names()) == sorted((*LOOPBACK, *SECURED))
    assert len(example_names()) == 10
    page = PAGE.read_text()
    for kind, status in STATUSES.items():
        assert f"| {status} | `{kind}` |" in page


def test_the_page_shows_the_output_of_the_doctor(
    fake: FakeCluster, unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check each example of the page that needs no security."""
    check_example("refused", [unused_address], {unused_address.rpartition(":")[2]: "9092"})
    start, port = fake.bootstrap_servers, fake.bootstrap_servers.rpartition(":")[2]
    check_example("topic", [start, "--topic", "flihgts"], {start: "kafka.example:9092"})
    with Producer({"bootstrap.servers": start}) as producer:
        for _ in range(SENT):
            producer.send("flights", b"x")
    words = [start, "--topic", "flights", "--group", "board"]
    check_example("nothing", words, {start: "kafka.example:9092"})
    advertise(fake, lambda i: Address(f"kafka-{i}.invalid", 29092))
    told = {start: "localhost:9092", "kafka-1.invalid": "kafka"}
    check_example("another network", [start], told)
    advertise(fake, lambda i: Address("localhost", 1 + i))
    host = socket.gethostname()
    monkeypatch.setattr("odradek.runtime.resolver.look_up", _also(host))
    told = {f"{host}:{port}": "kafka.example:9092", "localhost:2": "localhost:9092"}
    check_example("advertised", [f"{host}:{port}"], told)
    monkeypatch.setattr(environment, "in_container", lambda: True)
    check_example("container", [unused_address], {unused_address.rpartition(":")[2]: "9092"})


# The command


def test_invalid_arguments_exit_with_2() -> None:
    for words in (["--group", ""], ["--topic", "no/topic\u00e4" * 100], ["--config", "nonsense"]):
        done = CliRunner().invoke(build("doctor"), ["doctor", "localhost:1", *words])
        assert done.exit_code == 2, done.output
    done = CliRunner().invoke(build("doctor"), ["doctor", "localhost:1", "--config", "retry=1"])
    assert done.exit_code == 2


def test_the_option_bootstrap_server_is_accepted_as_in_kafkas_tools(fake: FakeCluster) -> None:
    status, found = doctor("--bootstrap-server", fake.bootstrap_servers)
    assert (status, found["kind"]) == (0, None)
    for words in ([], ["localhost:1", "--bootstrap-server", "localhost:1"]):
        done = CliRunner().invoke(build("doctor"), ["doctor", *words])
        assert done.exit_code == 2
        assert "--bootstrap-server" in done.stderr


def test_ctrl_c_exits_with_130_and_without_traceback() -> None:
    dialled = threading.Event()
    with (
        listening(lambda _: dialled.set()) as address,
        subprocess.Popen(
            [COMMAND, "doctor", address, "--timeout", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert dialled.wait(60.0)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "Traceback" not in error + out
