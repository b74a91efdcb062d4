"""Define faults that misroute connections, to another broker or to another cluster.

In: arguments of a schedule. Out: `MISROUTING_FAULTS`, which `fault_table` adds to its own. Metadata
still contains the right addresses, but another broker answers there (KIP-1242, R-RB-5): a recycled
address, a misconfigured proxy, two brokers that swapped addresses. There is at most one other
cluster of each release, with topics of the same names; at the end it must contain no data of the
tested clients. Must not change the bootstrap address.
"""

from __future__ import annotations

from typing import Any

from odradek.simulation.brokers import broker_faults
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.faults.fault_arguments import (
    BROKER,
    FLAG,
    ONE,
    TOPIC,
    Argument,
    FaultKind,
    Stage,
    seconds,
)

BYSTANDER = "bystander"
OLDER = "3.9"
"""A Kafka release without KIP-1242, whose brokers don't report misrouted connections."""


def _swap(stage: Stage, a: dict[str, Any]) -> None:
    """Kill two brokers and restart each at the other's address, with correct metadata."""
    cluster, i, j = stage.cluster, a["i"], a["j"]
    one, other = cluster.brokers[i], cluster.brokers[j]
    cluster.crash(i)
    cluster.crash(j)
    one.swap_addresses(other)
    for number in dict.fromkeys((i, j)):
        cluster.restart(number, after=max(a.get("after", 0.1), 1e-9))


def _connect_to_other_broker(stage: Stage, a: dict[str, Any]) -> None:
    """Connect a broker's address to another broker of its cluster."""
    _divert(stage, a, stage.cluster.brokers[a["to"]])


def _connect_to_other_cluster(stage: Stage, a: dict[str, Any]) -> None:
    """Connect a broker's address to another cluster."""
    _divert(stage, a, _bystander(stage, a.get("older", False)).brokers[1])


def _divert(stage: Stage, a: dict[str, Any], to: Any) -> None:
    world, broker = stage.world, stage.cluster.brokers[a["i"]]
    if to is broker:
        return
    address = broker.address
    world.divert(address, to)
    if not a.get("kept", False):  # `kept`: keep established connections
        broker.disconnect_all(reset=True)
    # Misrouted connections remain after the fault: a client that took the broker for another one
    # could keep using them.
    world.after(a["seconds"], lambda: world.divert(address, None, only=to))


def _bystander(stage: Stage, older: bool) -> SimulatedCluster:
    name = f"{BYSTANDER}-{OLDER if older else 'newest'}"
    found = next((one for one in stage.bystanders if one.name == name), None)
    if found is None:
        found = SimulatedCluster(stage.world, 1, f"{name}-0001", name=name, bootstrap_name=None)
        found.sasl = stage.cluster.sasl
        found.create_topic(TOPIC, max(1, broker_faults.size(stage.cluster, TOPIC)))
        if older:
            broker_faults.release_of_all(found, OLDER)
        for coordinators in (found.groups, found.transactions):  # accept misrouted commits
            coordinators.create()
        stage.bystanders.append(found)
    return found


_SECONDS = seconds(0.2, 6.0)
_AT_TIMES = Argument(FLAG.words, FLAG.allowed, lambda rng, _: rng.random() < 0.5, True)
MISROUTING_FAULTS: dict[str, FaultKind] = {
    "swap": FaultKind(
        "kill two brokers and bring each back at the other one's address",
        {**ONE, "j": BROKER, "after": seconds(0.05, 2, optional=True)}, _swap, 3,
        lambda a: a["i"] != a["j"],
    ),
    "lead_astray": FaultKind(
        "connect a broker's address to another broker of its cluster for `seconds`; with `kept` "
        "existing connections remain",
        {**ONE, "to": BROKER, "seconds": _SECONDS, "kept": _AT_TIMES}, _connect_to_other_broker, 3,
        lambda a: a["i"] != a["to"],
    ),
    "lead_abroad": FaultKind(
        "connect a broker's address to another cluster for `seconds`; with `older` that cluster "
        "runs an older Kafka version; with `kept` existing connections remain",
        {**ONE, "seconds": _SECONDS, "older": _AT_TIMES, "kept": _AT_TIMES},
        _connect_to_other_cluster, 6,
    ),
}  # fmt: skip
