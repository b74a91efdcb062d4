"""False responses to every call of an admin client, in virtual time.

Items are missing, duplicated, reordered, or were never requested; error codes and numbers are
invalid. In each case a call that names items reports each of them and no others; an error is a
`KafkaError`; no call takes longer than its timeout; and the next call works.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from tests.volume import PART

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.clients.admin.acls import AclBinding, AclBindingFilter
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.cluster import FeatureUpdate
from odradek.clients.admin.configs import AlterConfigOp, ConfigResource
from odradek.clients.admin.log_dirs import TopicPartitionReplica
from odradek.clients.admin.users import (
    ClientQuotaEntity,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek.common.errors import ClientBrokenError, KafkaError, UnsupportedFeatureError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message, Struct, field_names
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.broker import BrokerSession
from odradek.simulation.brokers.broker_handlers import HANDLERS

TIMEOUT = 3.0
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = (ConfigResource("TOPIC", "t"), ConfigResource("TOPIC", "u"))
REPLICAS = (TopicPartitionReplica("t", 0, 1), TopicPartitionReplica("t", 1, 2))
ACLS = (AclBinding("TOPIC", "t", "User:a", "READ"), AclBinding("TOPIC", "u", "User:a", "READ"))
FILTERS = (AclBindingFilter("TOPIC", "t"), AclBindingFilter("TOPIC", "u"))
ALICE = ClientQuotaEntity("alice")

CALLS: dict[str, tuple[Callable[[Admin], Any], Iterable[Any] | None]] = {
    "create_topics": (
        lambda a: a.create_topics([NewTopic("x", 1), NewTopic("y", 1)], TIMEOUT),
        ("x", "y"),
    ),
    "delete_topics": (lambda a: a.delete_topics(["t", "u"], TIMEOUT), ("t", "u")),
    "list_topics": (lambda a: a.list_topics(TIMEOUT), None),
    "describe_topics": (lambda a: a.describe_topics(["t", "u"], TIMEOUT), ("t", "u")),
    "create_partitions": (
        lambda a: a.create_partitions({"t": 9, "u": 9}, TIMEOUT),
        ("t", "u"),
    ),
    "delete_records": (lambda a: a.delete_records({T0: 0, U0: 0}, TIMEOUT), (T0, U0)),
    "describe_configs": (lambda a: a.describe_configs(TOPICS, TIMEOUT), TOPICS),
    "incremental_alter_configs": (
        lambda a: a.incremental_alter_configs(
            {at: [AlterConfigOp("retention.ms", "9000000")] for at in TOPICS}, TIMEOUT
        ),
        TOPICS,
    ),
    "list_config_resources": (lambda a: a.list_config_resources(None, TIMEOUT), None),
    "describe_cluster": (lambda a: a.describe_cluster(TIMEOUT), None),
    "describe_features": (lambda a: a.describe_features(TIMEOUT), None),
    "update_features": (
        lambda a: a.update_features(
            {"transaction.version": FeatureUpdate(1, "SAFE_DOWNGRADE")}, TIMEOUT
        ),
        None,
    ),
    "describe_metadata_quorum": (lambda a: a.describe_metadata_quorum(TIMEOUT), None),
    "unregister_broker": (lambda a: a.unregister_broker(3, TIMEOUT), None),
    "describe_log_dirs": (lambda a: a.describe_log_dirs([1, 2], TIMEOUT), (1, 2)),
    "describe_replica_log_dirs": (
        lambda a: a.describe_replica_log_dirs(REPLICAS, TIMEOUT),
        REPLICAS,
    ),
    "alter_replica_log_dirs": (
        lambda a: a.alter_replica_log_dirs(dict.fromkeys(REPLICAS, "/simulated/d2"), TIMEOUT),
        REPLICAS,
    ),
    "alter_partition_reassignments": (
        lambda a: a.alter_partition_reassignments({T0: [1], U0: [2]}, TIMEOUT),
        (T0, U0),
    ),
    "list_partition_reassignments": (
        lambda a: a.list_partition_reassignments(None, TIMEOUT),
        None,
    ),
    "elect_leaders": (lambda a: a.elect_leaders("PREFERRED", [T0, U0], TIMEOUT), (T0, U0)),
    "describe_api_versions": (lambda a: a.describe_api_versions(TIMEOUT), None),
    "describe_reachability": (lambda a: a.describe_reachability(["t"], TIMEOUT), None),
    "create_acls": (lambda a: a.create_acls(ACLS, TIMEOUT), ACLS),
    "describe_acls": (lambda a: a.describe_acls(None, TIMEOUT), None),
    "delete_acls": (lambda a: a.delete_acls(FILTERS, TIMEOUT), FILTERS),
    "describe_user_scram_credentials": (
        lambda a: a.describe_user_scram_credentials(["alice", "bob"], TIMEOUT),
        ("alice", "bob"),
    ),
    "alter_user_scram_credentials": (
        lambda a: a.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", "secret"),
                UserScramCredentialDeletion("alice", "SCRAM-SHA-256"),
            ],
            TIMEOUT,
        ),
        ("alice", "bob"),
    ),
    "describe_client_quotas": (lambda a: a.describe_client_quotas(None, TIMEOUT), None),
    "alter_client_quotas": (
        lambda a: a.alter_client_quotas({ALICE: {"producer_byte_rate": 5.0}}, TIMEOUT),
        (ALICE,),
    ),
    "describe_producers": (lambda a: a.describe_producers([T0, U0], TIMEOUT), (T0, U0)),
    "describe_transactions": (lambda a: a.describe_transactions(["x", "y"], TIMEOUT), ("x", "y")),
    "list_transactions": (lambda a: a.list_transactions(TIMEOUT), None),
    "fence_producers": (lambda a: a.fence_producers(["x", "y"], TIMEOUT), ("x", "y")),
    "find_hanging_transactions": (
        lambda a: a.find_hanging_transactions(["t"], TIMEOUT, older_than=0.0),
        None,
    ),
    "list_groups": (lambda a: a.list_groups(TIMEOUT), None),
    "describe_consumer_groups": (
        lambda a: a.describe_consumer_groups(["g", "h"], TIMEOUT),
        ("g", "h"),
    ),
    "describe_classic_groups": (
        lambda a: a.describe_classic_groups(["g", "h"], TIMEOUT),
        ("g", "h"),
    ),
    "describe_share_groups": (lambda a: a.describe_share_groups(["s", "r"], TIMEOUT), ("s", "r")),
    "delete_groups": (lambda a: a.delete_groups(["g", "h"], TIMEOUT), ("g", "h")),
    "list_group_offsets": (
        lambda a: a.list_group_offsets({"g": [T0], "h": None}, TIMEOUT),
        ("g", "h"),
    ),
    "alter_group_offsets": (
        lambda a: a.alter_group_offsets("g", {T0: 1, U0: 1}, TIMEOUT),
        (T0, U0),
    ),
    "delete_group_offsets": (lambda a: a.delete_group_offsets("g", [T0, U0], TIMEOUT), (T0, U0)),
    "list_share_group_offsets": (
        lambda a: a.list_share_group_offsets(["s", "r"], TIMEOUT),
        ("s", "r"),
    ),
    "alter_share_group_offsets": (
        lambda a: a.alter_share_group_offsets("s", {T0: 1, U0: 1}, TIMEOUT),
        (T0, U0),
    ),
    "delete_share_group_offsets": (
        lambda a: a.delete_share_group_offsets("s", ["t", "u"], TIMEOUT),
        ("t", "u"),
    ),
    "list_offsets": (lambda a: a.list_offsets({T0: "LATEST", U0: "EARLIEST"}, TIMEOUT), (T0, U0)),
}
"""Calls with the items that each call names; None for calls that list everything."""
SEEDS = max(2, 24 // PART)
NUMBERS = (-128, -2, -1, 0, 1, 99, 127)
"""Numbers that fit into any field."""


class Liar:
    """Change responses, chosen by a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.said: list[str] = []

    def of(self, message: Message) -> Message:
        if message.API_NAME == "ApiVersions":
            return message
        found = copy.deepcopy(message)
        self._walk(found, message.API_NAME)
        return found

    def _walk(self, value: Any, where: str) -> None:
        for name in field_names(type(value)):
            inner, path = getattr(value, name), f"{where}.{name}"
            if isinstance(inner, list):
                self._list(inner, path)
                for one in inner:
                    if isinstance(one, Struct):
                        self._walk(one, path)
            elif name == "error_code" and self._now(0.05):
                value.error_code = self._rng.choice((9999, -7, 32767, 1, 15, 36, 58, 83))
                self.said.append(f"{path} = {value.error_code}")
            elif type(inner) is int and self._now(0.05):
                setattr(value, name, self._rng.choice(NUMBERS))
                self.said.append(f"{path} = {getattr(value, name)}")

    def _list(self, items: list[Any], path: str) -> None:
        if not items or not self._now(0.1):
            return
        kind = self._rng.choice(("missing", "doubled", "foreign", "turned", "none"))
        self.said.append(f"{path} {kind}")
        place = self._rng.randrange(len(items))
        if kind == "missing":
            del items[place]
        elif kind == "doubled":
            items.insert(self._rng.randrange(len(items)), copy.deepcopy(items[place]))
        elif kind == "foreign":
            items.insert(place, self._other(items[place]))
        elif kind == "turned":
            items.reverse()
        else:
            items.clear()

    def _other(self, item: Any) -> Any:
        if isinstance(item, str):
            return f"{item}-other"
        if not isinstance(item, Struct):
            return item
        made: Any = copy.deepcopy(item)
        for name in field_names(type(made)):
            inner = getattr(made, name)
            if isinstance(inner, str) and inner:
                setattr(made, name, f"{inner}-other")
            elif name in ("partition_index", "partition"):
                setattr(made, name, inner + 100)
        return made

    def _now(self, chance: float) -> bool:
        return self._rng.random() < chance


def asked_of(seed: int) -> tuple[World, SimulatedCluster]:
    """Create a cluster that contains something for each call."""
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 1)
    at = {"bootstrap.servers": cluster.bootstrap_servers}
    with on_host(world.host("before"), Admin, at) as admin:
        for group in ("g", "h"):
            admin.alter_group_offsets(group, {T0: 0})
        for group in ("s", "r"):
            admin.alter_share_group_offsets(group, {T0: 0, U0: 0})
        admin.create_acls(ACLS)
        admin.fence_producers(["x", "y"])
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret")]
        )
        admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1.0}})
    return world, cluster


def admin_of(world: World, cluster: SimulatedCluster) -> Admin:
    at = {"bootstrap.servers": cluster.bootstrap_servers}
    return on_host(world.host("admin"), Admin, at)


def scene(seed: int, patch: pytest.MonkeyPatch) -> tuple[World, Admin, Liar]:
    """Create an admin client that gets false responses only."""
    world, cluster = asked_of(seed)
    liar, usual = Liar(seed), BrokerSession.answer

    def answer(self: BrokerSession, request: Any, response: Message | None, version: int) -> None:
        usual(self, request, response if response is None else liar.of(response), version)

    patch.setattr(BrokerSession, "answer", answer)
    return world, admin_of(world, cluster), liar


def outcome(call: Callable[[Admin], Any], admin: Admin) -> Any:
    try:
        return call(admin)
    except KafkaError as error:
        return error


def told_of(found: Any, items: Iterable[Any]) -> None:
    """Check that exactly these items are in the results and errors."""
    asked = set(items)
    if isinstance(found, KafkaError):
        if found.errors:
            told = {*found.results, *found.errors}
            assert told == asked
            assert not {*found.results} & {*found.errors}
    elif isinstance(found, Mapping):
        assert set(found) == asked


@pytest.mark.parametrize("name", CALLS)
def test_a_call_reports_exactly_the_requested_items(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, items = CALLS[name]
    for seed in range(100, 100 + SEEDS):
        with monkeypatch.context() as patch:
            world, admin, liar = scene(seed, patch)
            began = world.now
            found = outcome(call, admin)
            why = f"seed {seed}: {found!r} after {liar.said}"
            assert not isinstance(found, ClientBrokenError), why
            assert world.now - began < TIMEOUT + 0.5, why
            if items is not None:
                told_of(found, items)
            elif isinstance(found, list):
                assert len({*map(repr, found)}) == len(found), why
        again = outcome(lambda a: a.describe_cluster(10.0), admin)
        assert not isinstance(again, KafkaError), f"{why}, then {again!r}"
        admin.close(0.0)


HOWS = ("closed", "in silence", "gone")


@pytest.mark.parametrize("how", HOWS)
def test_calls_work_or_report_missing_versions_after_a_downgrade_of_brokers(how: str) -> None:
    """Check that a connected client uses older versions, or reports which ones are missing."""
    older = UnsupportedVersionError, UnsupportedFeatureError
    for name, (call, items) in [*CALLS.items()][HOWS.index(how) :: min(PART, 6)]:
        world, cluster = asked_of(1)
        admin = admin_of(world, cluster)
        admin.describe_cluster()
        for kind in HANDLERS:
            asks = kind.API_NAME in ("ApiVersions", "FindCoordinator", "Metadata")
            if not asks and kind.API_KEY in cluster.versions:  # brokers needn't receive metrics
                low, _ = cluster.versions.pop(kind.API_KEY)
                if how != "gone":
                    cluster.versions[kind.API_KEY] = low, low
        if how != "in silence":
            for broker in cluster.brokers.values():
                broker.disconnect_all()
        began = world.now
        found = outcome(call, admin)
        assert world.now - began < TIMEOUT + 0.5, (name, found)
        if isinstance(found, KafkaError):
            usual = name == "describe_user_scram_credentials"  # bob doesn't exist
            assert usual or isinstance(found, older), (name, found)
        elif items is not None:
            told_of(found, items)
        admin.close(0.0)
