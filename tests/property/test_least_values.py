"""Clients with each time option at its smallest allowed value: maybe slow, but not broken.

An engine that immediately repeated a request that can't succeed yet would never end its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.volume import WHOLE

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.config import OPTIONS, Config
from odradek.common.errors import ClientBrokenError, ConfigurationError, KafkaError
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

pytestmark = pytest.mark.simulation

TRIED = (0, 1, 2, 10, 50, 100, 500, 1000, 5000, 10_000)
AT_ONCE = ("retry.backoff.ms", "retry.backoff.max.ms", "default.api.timeout.ms", "max.block.ms")
"""Options that are set to 0 together: the client must still not repeat requests in a loop."""
Use = Callable[[World, dict[str, Any]], Iterator[Callable[[], object]]]


def least(client: str, names: tuple[str, ...], base: dict[str, Any]) -> dict[str, Any] | None:
    """Return the configuration with the smallest accepted values of these options."""
    given = dict(base)
    for name in names:
        for value in TRIED:
            # An option with a bound that depends on this one is changed too.
            for more in ({}, {"fetch.max.wait.ms": 0}, {"heartbeat.interval.ms": 1}):
                try:
                    Config(client, {**given, **more, name: value})
                except ConfigurationError:
                    continue
                given.update({**more, name: value})
                break
            else:
                continue
            break
        else:
            return None
    return given


def reading(protocol: str, how: str) -> Use:
    def use(world: World, config: dict[str, Any]) -> Iterator[Callable[[], object]]:
        group = {} if how == "alone" else {"group.id": "g", "group.protocol": protocol}
        if protocol == "consumer":
            config = {k: v for k, v in config.items() if k not in NOT_WITH_THE_NEW_PROTOCOL}
        client = on_host(
            world.host("c"), Consumer, {**config, **group, "auto.offset.reset": "earliest"}
        )
        if how == "pattern":
            client.subscribe(pattern="t.*")
        elif how == "subscribe":
            client.subscribe(["t"])
        else:
            client.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        for _ in range(4):
            yield lambda: client.poll(1.0)
        yield lambda: client.end_offsets([TopicPartition("t", 0)])
        yield lambda: client.partitions_for("t")
        if group:
            yield client.commit
            yield lambda: client.committed([TopicPartition("t", 0)])
        yield lambda: client.poll(1.0)
        yield lambda: client.close(2)

    return use


def writing(**more: Any) -> Use:
    def use(world: World, config: dict[str, Any]) -> Iterator[Callable[[], object]]:
        client = on_host(world.host("p"), Producer, {**config, **more})
        if more:
            yield lambda: client.init_transactions(10)
            yield client.begin_transaction
        for n in range(6):
            yield lambda n=n: client.send("t", b"%d" % n, partition=n % 2)  # type: ignore[misc]
            yield lambda: world.advance(0.5)
        if more:
            yield client.commit_transaction
        yield lambda: client.flush(5)
        yield lambda: client.partitions_for("t")
        yield lambda: client.close(2)

    return use


def administering(world: World, config: dict[str, Any]) -> Iterator[Callable[[], object]]:
    client = on_host(world.host("a"), Admin, config)
    for _ in range(3):
        yield client.list_topics
        yield lambda: client.describe_topics(["t"], 5)
        yield lambda: world.advance(1.0)
    yield lambda: client.close(2)


NOT_WITH_THE_NEW_PROTOCOL = ("session.timeout.ms", "heartbeat.interval.ms")
USES: dict[str, tuple[str, dict[str, Any], Use]] = {
    "assign": (CONSUMER, {}, reading("classic", "alone")),
    "assign in a group": (CONSUMER, {"group.id": "g"}, reading("classic", "assign")),
    "subscribe": (CONSUMER, {"group.id": "g"}, reading("classic", "subscribe")),
    "pattern": (CONSUMER, {"group.id": "g"}, reading("classic", "pattern")),
    "KIP-848": (CONSUMER, {"group.id": "g"}, reading("consumer", "subscribe")),
    "producer": (PRODUCER, {}, writing()),
    "transactions": (PRODUCER, {}, writing(**{"transactional.id": "x"})),
    "admin": (ADMIN, {}, administering),
}
NAMES = [name for name, option in OPTIONS.items() if name.endswith(".ms") and option.name == name]


def filled(seed: int) -> tuple[World, SimulatedCluster, dict[str, Any]]:
    """Create a cluster with some records; return the client's settings."""
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    cluster.create_topic("t", partitions=2)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with on_host(world.host("filler"), Producer, servers) as filler:
        for n in range(6):
            filler.send("t", b"%d" % n, partition=n % 2)
    return world, cluster, servers


def run(use: str, names: tuple[str, ...], *, disturbed: bool) -> int:
    """Use the client; return how many steps succeeded."""
    client, base, act = USES[use]
    world, cluster, servers = filled(5)
    config = least(client, names, {**servers, **base})
    if config is None:
        return -1
    good = 0
    for number, call in enumerate(act(world, config)):
        if disturbed and number == 3:
            cluster.stop(1)
        try:
            call()
            good += 1
        except ClientBrokenError:
            raise
        except KafkaError:
            continue
    return good


@pytest.mark.parametrize("use", USES)
def test_a_client_works_if_any_single_time_option_has_its_smallest_value(use: str) -> None:
    names = [name for name in NAMES if USES[use][0] in OPTIONS[name].clients]
    assert len(names) > 8
    if not WHOLE:  # each option is tried in one use of each kind of client
        uses = [one for one in USES if USES[one][0] == USES[use][0]]
        names = names[uses.index(use) :: len(uses)]
    for name in names:
        assert run(use, (name,), disturbed=False) > 0, name


@pytest.mark.parametrize("use", USES)
def test_a_client_works_with_all_retry_backoffs_at_their_smallest_value(use: str) -> None:
    names = tuple(n for n in AT_ONCE if USES[use][0] in OPTIONS[n].clients)
    for disturbed in (False, True):
        assert run(use, names, disturbed=disturbed) > 0


@pytest.mark.parametrize("use", [u for u in USES if USES[u][0] == CONSUMER])
def test_records_are_read_with_a_default_call_timeout_of_zero(use: str) -> None:
    """Set `default.api.timeout.ms` to 0: the option limits calls, not the client's own requests."""
    world, _, servers = filled(6)
    read: list[bytes] = []
    config = {**servers, "default.api.timeout.ms": 0}
    for call in USES[use][2](world, config):
        try:
            result: Any = call()
        except ClientBrokenError:
            raise
        except KafkaError:
            continue
        read += [r.value for r in result or () if hasattr(r, "value")]
    assert sorted(read) == [b"%d" % n for n in range(6)]
