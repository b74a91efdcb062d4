"""Descriptions of faults, and effects of faults on a client in simulated time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.clients.admin import cluster
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.common.config import ADMIN, Config
from odradek.common.errors import KafkaError
from odradek.network.flow import Completion
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.faults.fault_table import (
    APPLICATION,
    BOOTSTRAP_NAME,
    HOSTILE,
    PLAIN,
    VERBS,
    Fault,
    ScheduleError,
    Scope,
    Stage,
    check,
    describe,
    draw,
    heal,
    plan,
)
from odradek.simulation.world.client_host import ClientHost

DOCS = Path(__file__).parents[3] / "docs" / "simulation.md"
SCOPE = Scope(brokers=3, partitions=2, clients=("one", "two"))
OF_THE_ISSUE = (
    "crash restart bounce pause move replace_with_foreign accept_then_reset ready_then_close "
    "blackhole go_silent throttle answer_129 answer_empty_brokers stale_metadata partition repair "
    "dns_change slow_handshake"
)


class Client:
    """An admin client that makes one API call after the other."""

    def __init__(self, world: World, cluster: SimulatedCluster, name: str = "one") -> None:
        self.world = world
        self.host: ClientHost = world.host(name, mode="messages")
        config = Config(ADMIN, {"bootstrap.servers": cluster.bootstrap_servers})
        self.engine = AdminEngine(config, self.host.rng())
        self.host.attach(self.engine)

    def ask(self, timeout: float = 5.0) -> float:
        """Call `describe_cluster` and return the duration of the call."""
        begin = self.world.now
        done: Completion[Any] = self.engine.start(
            cluster.describe(False, False).flow(self.engine, begin + timeout)
        )
        self.host.wake()
        self.host.run(done, begin + timeout + 0.1)
        done.result()
        return self.world.now - begin


@pytest.fixture
def stage() -> Stage:
    world = World(3)
    cluster = SimulatedCluster(world, 1)
    cluster.create_topic("t", 2)
    return Stage(world, cluster)


def act(stage: Stage, verb: str, **arguments: Any) -> None:
    fault = Fault(stage.world.now, verb, arguments)
    check(fault, Scope(len(stage.cluster.brokers), 2, tuple(stage.world.hosts)))
    plan(fault, stage)
    stage.world.advance(0.0)


def test_every_fault_has_a_description() -> None:
    assert set(OF_THE_ISSUE.split()) <= set(VERBS)
    for name, verb in VERBS.items():
        assert f"{name}: {verb.doc}" in describe()


@pytest.mark.parametrize("name", VERBS)
def test_the_documentation_lists_each_fault_with_its_arguments(name: str) -> None:
    arguments = ", ".join(k + "?" * a.optional for k, a in VERBS[name].arguments.items())
    row = f"| `{name}` | {arguments or '–'} | "
    assert any(line.startswith(row) for line in DOCS.read_text().splitlines()), f"no row {row}…"


@pytest.mark.parametrize("verb", VERBS)
def test_every_fault_can_be_chosen_at_random_injected_and_repaired(verb: str) -> None:
    rng = random.Random(1)
    for seed in range(5):
        world = World(seed)
        stage = Stage(world, SimulatedCluster(world, 3))
        stage.cluster.create_topic("t", 2)
        one, _ = Client(world, stage.cluster, "one"), Client(world, stage.cluster, "two")
        one.ask()
        arguments = {k: a.draw(rng, SCOPE) for k, a in VERBS[verb].arguments.items()}
        act(stage, verb, **arguments)
        world.advance(1.0)
        heal(stage)
        world.advance(1.0)
        if verb == "replace_with_foreign":
            with pytest.raises(KafkaError):
                one.ask(20.0)
        else:
            one.ask(60.0)


def test_randomly_chosen_faults_are_valid() -> None:
    rng = random.Random(2)
    for verbs in (PLAIN, HOSTILE, APPLICATION):
        for _ in range(500):
            check(draw(rng, 1.0, SCOPE, verbs), SCOPE)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (Fault(1.0, "explode", {}), "there is no verb 'explode'; there are: crash, "),
        (Fault(-1.0, "crash", {"i": 1}), "at must be 0 or more"),
        (Fault(1.0, "crash", {}), "crash needs i: a broker's id"),
        (Fault(1.0, "crash", {"i": 4}), "i must be a broker's id, from 1 on, not 4"),
        (Fault(1.0, "crash", {"i": True}), "not True"),
        (Fault(1.0, "crash", {"i": 1, "hard": 1}), r"no argument 'hard' \(it has: i\)"),
        (Fault(1.0, "partition", {"i": 1, "client": "three"}), "client must be a client's name"),
        (Fault(1.0, "throttle", {"i": 1, "seconds": "2"}), "seconds must be seconds"),
        (Fault(1.0, "move", {"after": 1, "old": "gone"}), "must be 'refused' or 'blackholed'"),
        (Fault(1.0, "dns_change", {"name": "x", "addresses": ["broker-9"]}), "must be a list of"),
        (Fault(1.0, "change_link", {"loss": 1.5}), "a probability"),
        (Fault(1.0, "answer_129", {"on": 1}), "true or false"),
    ],
)
def test_an_invalid_description_of_a_fault_is_rejected(fault: Fault, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        check(fault, SCOPE)


# Their effects


def test_clients_send_nothing_while_a_broker_throttles_them(stage: Stage) -> None:
    client = Client(stage.world, stage.cluster)
    client.ask()
    act(stage, "throttle", i=1, seconds=0.5)
    assert client.ask() < 0.1
    assert 0.4 < client.ask() < 0.6
    act(stage, "repair", i=1)
    client.ask()
    assert client.ask() < 0.1


def test_a_client_waits_for_a_slow_handshake(stage: Stage) -> None:
    act(stage, "slow_handshake", i=1, seconds=1.5)
    assert 1.5 < Client(stage.world, stage.cluster).ask() < 4.0


def test_a_network_partition_can_isolate_a_single_client(stage: Stage) -> None:
    one, two = (Client(stage.world, stage.cluster, name) for name in ("one", "two"))
    one.ask()
    two.ask()
    act(stage, "partition", i=1, client="one")
    assert two.ask() < 0.1
    with pytest.raises(KafkaError):
        one.ask(1.0)
    assert not [d for d in stage.world.dials if d.outcome == "dropped" and d.client == "two"]
    act(stage, "repair", i=1)
    assert one.ask(20.0) < 15.0


def test_a_half_open_connection_is_noticed_at_the_next_request(stage: Stage) -> None:
    client = Client(stage.world, stage.cluster)
    client.ask()
    act(stage, "half_open", i=1)
    stage.world.advance(1.0)
    assert not client.host.trace.of_kind("disconnected")[1:]
    assert client.ask() < 1.0
    (lost,) = client.host.trace.of_kind("disconnected")[1:]
    assert "reset" in lost.fields["error"]


def test_a_client_recovers_after_its_machine_lacked_memory_and_then_sockets(stage: Stage) -> None:
    client = Client(stage.world, stage.cluster)
    client.ask()
    act(stage, "exhaust", memory=True, seconds=1.0)
    with pytest.raises(KafkaError):
        client.ask(0.5)
    errors = {e.fields["error"] for e in client.host.trace.of_kind("disconnected")}
    assert any("NoMemoryError" in error for error in errors)
    stage.world.advance(1.0)
    assert client.ask() < 2.0
    act(stage, "half_open", i=1)
    act(stage, "exhaust", descriptors=True, seconds=1.0)
    with pytest.raises(KafkaError, match="Too many open files"):
        client.ask(0.5)
    stage.world.advance(1.0)
    assert client.ask() < 2.0


def test_stale_metadata_shows_old_leaders_and_epochs() -> None:
    world = World(1)
    cluster = SimulatedCluster(world, 2)
    cluster.create_topic("t", 1)
    old = cluster.topics["t"].partitions[0].leader_epoch
    cluster.stale_metadata(1)
    cluster.move_leader("t", 0)
    body = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    seen = []
    for i in (1, 2):
        client = RawClient(world)
        client.dial(cluster.brokers[i].address.host)
        partition = client.ask(body, 12).topics[0].partitions[0]
        seen.append((partition.leader_id, partition.leader_epoch))
    assert seen == [(1, old), (2, old + 1)]
    cluster.repair(1)
    assert client.ask(body, 12).topics[0].partitions[0].leader_epoch == old + 1


def test_a_host_name_can_be_made_to_resolve_to_another_address_or_to_none(stage: Stage) -> None:
    act(stage, "dns_change", name=BOOTSTRAP_NAME, addresses=["broker-1", "front-door"])
    address = stage.cluster.brokers[1].address.host
    assert stage.world.dns[BOOTSTRAP_NAME][0] == address
    Client(stage.world, stage.cluster).ask()
    assert stage.world.dials[0].ip == address
    act(stage, "dns_change", name=BOOTSTRAP_NAME, addresses=[])
    with pytest.raises(KafkaError):
        Client(stage.world, stage.cluster, "two").ask(1.0)
    heal(stage)
    Client(stage.world, stage.cluster, "three").ask(10.0)


def test_a_change_of_network_latency_applies_to_one_client_or_to_all(stage: Stage) -> None:
    one, two = (Client(stage.world, stage.cluster, name) for name in ("one", "two"))
    one.ask()
    two.ask()
    stage.world.change_link("one", latency=0.3, jitter=0.0)
    assert 0.6 < one.ask() < 0.7
    assert two.ask() < 0.1
    act(stage, "change_link", latency=0.2, jitter=0.0)
    assert 0.4 < two.ask() < 0.5
    heal(stage)
    assert two.ask() < 0.1


def test_a_clock_jump_changes_only_the_wall_clock(stage: Stage) -> None:
    before, now = stage.world.wall_clock(), stage.world.now
    act(stage, "clock_jump", seconds=-100.0)
    assert stage.world.wall_clock() == before - 100.0
    assert stage.world.now == now


def test_a_cluster_that_was_replaced_with_a_different_one_remains_down(stage: Stage) -> None:
    cluster = stage.cluster
    act(stage, "move", after=2.0)
    act(stage, "replace_with_foreign")
    stage.world.advance(10.0)
    assert stage.left == [cluster]
    assert not any(b.alive for b in cluster.brokers.values())
    assert all(b.alive for b in stage.cluster.brokers.values())
