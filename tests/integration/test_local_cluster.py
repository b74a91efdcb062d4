"""Test LocalCluster with real brokers: service, faults, and no processes left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.other_client import Row, read_all, write_all

from odradek.common.types import Address
from odradek.testing import ClusterStartError, LocalCluster, ToolError
from odradek.testing.brokers import probe
from odradek.testing.brokers.broker import JavaSetup, LocalBroker
from odradek.testing.brokers.broker_set import BrokerSet, Timeline
from odradek.testing.brokers.detached import start_time
from odradek.testing.brokers.process import Child, Keeper
from odradek.testing.brokers.shared_clusters import SharedClusters

LINES = [f"line {number}" for number in range(50)]
PATIENCE = 60.0


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def write(cluster: LocalCluster, topic: str) -> None:
    write_all(cluster.bootstrap_servers, topic, [Row(None, line.encode()) for line in LINES])


def read(cluster: LocalCluster, topic: str, partitions: int = 1) -> list[str]:
    """Return all lines, sorted; after a kill they are visible once followers have fetched again."""
    until = time.monotonic() + PATIENCE
    while True:
        rows = read_all(cluster.bootstrap_servers, topic, partitions).values()
        found = sorted((row.value or b"").decode() for part in rows for row in part)
        if len(found) >= len(LINES) or time.monotonic() > until:
            return found
        time.sleep(0.2)


def events(cluster: LocalCluster, since: int) -> list[tuple[str, int | None]]:
    return [(event.name, event.broker) for event in cluster.timeline[since:]]


def test_the_front_door_forwards_to_the_brokers(mortal_cluster: LocalCluster) -> None:
    view = probe.ask(address(mortal_cluster.bootstrap_servers))
    assert view is not None
    assert tuple(str(view.brokers[i]) for i in range(3)) == mortal_cluster.broker_addresses
    assert "Kafka Server started" in mortal_cluster.logs(2)


def test_a_failing_kafka_tool_raises_with_the_reason(mortal_cluster: LocalCluster) -> None:
    servers = mortal_cluster.bootstrap_servers
    with pytest.raises(ToolError, match="Topic 'nix' does not exist"):
        mortal_cluster.run_tool(
            "org.apache.kafka.tools.TopicCommand",
            ["--bootstrap-server", servers, "--describe", "--topic", "nix"],
        )
    with pytest.raises(ToolError, match="replication factor of 9 cannot be reached"):
        mortal_cluster.create_topic("too-many-copies", replication_factor=9)


@pytest.mark.long  # shorter tests: test_outages.py (a leader is killed and comes back)
def test_a_killed_broker_can_be_started_again(mortal_cluster: LocalCluster) -> None:
    mortal_cluster.kill(1)
    assert mortal_cluster.running == (0, 2)
    assert probe.ask(address(mortal_cluster.broker_addresses[1])) is None
    assert probe.ask(address(mortal_cluster.bootstrap_servers)) is not None
    mortal_cluster.start(1)
    view = probe.ask(address(mortal_cluster.broker_addresses[1]))
    assert view is not None
    assert set(view.brokers) == {0, 1, 2}


def test_a_paused_broker_answers_only_after_resume(mortal_cluster: LocalCluster) -> None:
    where = address(mortal_cluster.broker_addresses[2])
    mortal_cluster.pause(2)
    try:
        assert probe.ask(where, timeout=0.5) is None
    finally:
        mortal_cluster.resume(2)
    assert probe.ask(where, timeout=10.0) is not None


@pytest.fixture
def fake_processes(tmp_path: Path) -> Iterator[tuple[BrokerSet, Callable[[], None]]]:
    """Return fakes of the brokers' processes, and a function that kills the first fake."""
    keeper = Keeper()
    java = JavaSetup(tmp_path, tmp_path, tmp_path)
    brokers = BrokerSet(
        keeper=keeper, java=java, directory=tmp_path / "set", count=3, config={},
        timeline=Timeline(),
    )  # fmt: skip
    for broker in brokers.brokers:
        broker.child = keeper.spawn(["sleep", "60"], stdout=tmp_path / "out")

    def end() -> None:
        child = brokers.brokers[0].child
        assert child is not None
        keeper.signal(child, signal.SIGKILL)
        assert child.ended.wait(10.0)

    yield brokers, end
    keeper.close()


def test_pause_returns_once_the_broker_process_is_stopped(
    fake_processes: tuple[BrokerSet, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, _ = fake_processes
    broker = brokers.brokers[1]
    assert broker.child is not None
    stat = Path(f"/proc/{broker.child.pid}/stat")
    signalled = Keeper.signal

    def late(keeper: Keeper, child: Child, number: signal.Signals) -> None:
        threading.Timer(0.3, signalled, (keeper, child, number)).start()

    monkeypatch.setattr(Keeper, "signal", late)
    brokers.pause(broker)
    assert stat.read_text().rpartition(")")[2].split()[0] == "T"
    monkeypatch.undo()
    brokers.resume(broker)


def test_resume_accepts_a_paused_broker_whose_process_has_ended(
    fake_processes: tuple[BrokerSet, Callable[[], None]],
) -> None:
    brokers, end = fake_processes
    broker = brokers.brokers[0]
    brokers.pause(broker)
    end()
    brokers.resume(broker)
    assert not broker.paused
    with pytest.raises(RuntimeError, match="broker 0 isn't running"):
        brokers.resume(broker)  # the broker isn't paused any more: the caller's error


def test_stop_accepts_a_paused_broker_whose_process_ends_meanwhile(
    fake_processes: tuple[BrokerSet, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, end = fake_processes
    brokers.pause(brokers.brokers[0])
    sends = brokers._signal

    def and_ends(broker: LocalBroker, number: signal.Signals) -> None:
        sends(broker, number)
        if broker is brokers.brokers[0]:
            end()

    monkeypatch.setattr(brokers, "_signal", and_ends)
    brokers.stop(brokers.brokers, graceful=False)
    assert not any(broker.running or broker.paused for broker in brokers.brokers)


@pytest.fixture
def lone_cluster(clusters: SharedClusters) -> LocalCluster:
    """Return a cluster of one broker, which is enough for a move or an orderly end."""
    return clusters.shared({"brokers": 1})


@pytest.mark.long  # shorter tests: test_outages.py (the whole cluster moves away)
def test_move_keeps_data_and_id_and_changes_the_address(
    lone_cluster: LocalCluster, topic: str
) -> None:
    lone_cluster.create_topic(topic, partitions=3)
    write(lone_cluster, topic)
    door, old_id = lone_cluster.bootstrap_servers, lone_cluster.cluster_id
    old = {address(one).host for one in lone_cluster.broker_addresses}
    since = len(lone_cluster.timeline)

    lone_cluster.move()

    assert lone_cluster.bootstrap_servers == door
    assert lone_cluster.cluster_id == old_id
    assert old.isdisjoint(address(one).host for one in lone_cluster.broker_addresses)
    view = probe.ask(address(door))
    assert view is not None
    assert {str(one) for one in view.brokers.values()} == set(lone_cluster.broker_addresses)
    assert view.leaderless == 0
    assert read(lone_cluster, topic, 3) == sorted(LINES)
    told = events(lone_cluster, since)
    assert told[0] == ("move_started", None)
    order = [("broker_exited", 0), ("broker_listening", 0), ("broker_up", 0)]
    assert [one for one in told if one in order] == order
    assert told[-2:] == [("cluster_up", None), ("moved", None)]


@pytest.mark.long  # shorter tests: test_compat_confluent.py (a graceful move)
def test_a_graceful_move_keeps_data(lone_cluster: LocalCluster, topic: str) -> None:
    lone_cluster.create_topic(topic)
    write(lone_cluster, topic)
    since = len(lone_cluster.timeline)
    lone_cluster.move(graceful=True)
    assert read(lone_cluster, topic) == sorted(LINES)
    assert events(lone_cluster, since)[-1] == ("moved", None)


@pytest.mark.long  # shorter tests: spark/test_outages.py (a different cluster)
def test_a_different_cluster_replaces_the_brokers_and_is_undone(
    lone_cluster: LocalCluster, topic: str
) -> None:
    lone_cluster.create_topic(topic)
    write(lone_cluster, topic)
    own_id, addresses = lone_cluster.cluster_id, lone_cluster.broker_addresses

    foreign_id = lone_cluster.replace_with_foreign(same_addresses=True)
    try:
        assert foreign_id != own_id
        assert lone_cluster.cluster_id == foreign_id
        assert lone_cluster.broker_addresses == addresses
        view = probe.ask(address(lone_cluster.bootstrap_servers))
        assert view is not None
        assert view.topics == 0
    finally:
        lone_cluster.restore()

    assert lone_cluster.cluster_id == own_id
    assert read(lone_cluster, topic) == sorted(LINES)


def test_the_error_of_a_broker_that_cannot_start_has_the_end_of_its_log() -> None:
    with (
        pytest.raises(ClusterStartError, match=r"no\.such\.Authorizer"),
        LocalCluster(brokers=1, config={"authorizer.class.name": "no.such.Authorizer"}),
    ):
        pass


@pytest.mark.long
def test_a_kept_data_directory_is_reused_and_old_records_are_kept(
    tmp_path: Path, topic: str
) -> None:
    folder = tmp_path / "kept"
    looks = {"log.initial.task.delay.ms": "200", "log.retention.check.interval.ms": "200"}
    with LocalCluster(brokers=1, version="4.1", directory=folder, config=looks) as cluster:
        assert cluster.version.startswith("4.1.")
        first_id = cluster.cluster_id
        cluster.create_topic(topic)
        write(cluster, topic)
        cluster.create_topic(f"{topic}-old")
        old = [Row(None, b"of 2001", (), 1_000_000_000_000)]
        write_all(cluster.bootstrap_servers, f"{topic}-old", old)
    with LocalCluster(brokers=1, version="4.1", directory=folder, config=looks) as cluster:
        assert cluster.cluster_id == first_id
        assert read(cluster, topic) == sorted(LINES)
        # Several checks for records past their retention time have happened by now.
        assert read_all(cluster.bootstrap_servers, f"{topic}-old", 1) == {0: old}


OWNER = """
import json, threading
from odradek.testing import LocalCluster
with LocalCluster(brokers=1) as cluster:
    told = {"pids": list(cluster.pids().values()), "directory": str(cluster.directory)}
    print(json.dumps(told), flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_no_process_outlives_the_process_that_started_it(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        assert all(start_time(pid) for pid in told["pids"])
        owner.send_signal(number)
        owner.wait(timeout=20)
    waiting = threading.Event()
    for _ in range(200):
        left = [pid for pid in told["pids"] if start_time(pid)]
        if not left and not Path(told["directory"]).exists():
            break
        waiting.wait(0.05)
    assert left == []
    assert not Path(told["directory"]).exists()


def test_brokers_end_if_their_keeper_process_is_killed(
    fake_processes: tuple[BrokerSet, Callable[[], None]],
) -> None:
    brokers, _ = fake_processes
    pids = [broker.child.pid for broker in brokers.brokers if broker.child is not None]
    assert len(pids) == 3
    parent = Path(f"/proc/{pids[0]}/stat").read_text().rsplit(")", 1)[1].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    waiting = threading.Event()
    for _ in range(200):  # the brokers may end a moment before their keeper
        running = [broker.node_id for broker in brokers.brokers if broker.running]
        left = [pid for pid in pids if start_time(pid) is not None]
        if not left and not running:
            break
        waiting.wait(0.05)
    assert (left, running) == ([], [])
