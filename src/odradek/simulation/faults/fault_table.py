"""List all kinds of faults, and inject them into a simulation.

In: `Fault` values, written by hand, drawn from a seed or read from a schedule file. Out: a call of
the cluster or `World` at the fault's time. `VERBS` is the only table: schedules are checked against
it, and random faults are drawn from it. Must not know clients beyond their names.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from odradek.simulation.brokers import broker_faults
from odradek.simulation.faults.application_faults import APPLICATION
from odradek.simulation.faults.fault_arguments import (
    ADDRESSES,
    ANY_SECONDS,
    BANDWIDTH,
    BOOTSTRAP_NAME,
    CLIENT,
    FLAG,
    FRONT_DOOR,
    NAME,
    ONE,
    PARTITION,
    SHARE,
    UNUSED_ADDRESS,
    Act,
    Argument,
    Fault,
    FaultKind,
    ScheduleError,
    Scope,
    Stage,
    choice,
    is_number,
    seconds,
)
from odradek.simulation.faults.misrouting_faults import MISROUTING_FAULTS
from odradek.simulation.faults.response_faults import HOSTILE

__all__ = [
    "APPLICATION",
    "BOOTSTRAP_NAME",
    "FRONT_DOOR",
    "HOSTILE",
    "MISROUTING_FAULTS",
    "PLAIN",
    "SHORT",
    "UNUSED_ADDRESS",
    "VERBS",
    "Argument",
    "Fault",
    "FaultKind",
    "ScheduleError",
    "Scope",
    "Stage",
    "check",
    "describe",
    "draw",
    "heal",
    "plan",
]


def _on_broker(method: str) -> Act:
    return lambda stage, a: getattr(stage.cluster, method)(**a)


def _move_leader(stage: Stage, a: dict[str, Any]) -> None:
    for name, topic in stage.cluster.topics.items():
        if a["partition"] < len(topic.partitions):
            stage.cluster.hand_over(name, a["partition"])


def _replace(stage: Stage, a: dict[str, Any]) -> None:
    stage.replace_cluster(**a)


def _dns_change(stage: Stage, a: dict[str, Any]) -> None:
    cluster = stage.cluster
    known = {FRONT_DOOR: cluster.front_door.address.host}
    known |= {f"broker-{i}": b.address.host for i, b in cluster.brokers.items()}
    stage.world.dns_change(a["name"], [known.get(text, text) for text in a["addresses"]])


def _change_link(stage: Stage, a: dict[str, Any]) -> None:
    stage.world.change_link(**a)


def _exhaust(stage: Stage, a: dict[str, Any]) -> None:
    """Take resources from all clients for some time; overlapping faults end with the first."""
    world, names = stage.world, [f"no_{name}" for name in SHORTAGES if a.get(name)]
    for at, on in ((world.now, True), (world.now + a["seconds"], False)):
        change: dict[str, Any] = dict.fromkeys(names, on)
        world.at(at, partial(world.change_link, **change))


SHORTAGES = ("descriptors", "memory")
PLAIN: dict[str, FaultKind] = {
    "crash": FaultKind(
        "kill a broker; it stays down until it is restarted or the faults end",
        ONE, _on_broker("crash"), 3,
    ),
    "stop": FaultKind(
        "shut a broker down cleanly: it moves its leaderships to other brokers first",
        ONE, _on_broker("stop"),
    ),
    "restart": FaultKind(
        "start a broker that is down",
        {**ONE, "after": seconds(0, 2, optional=True), "new_address": FLAG},
        _on_broker("restart"),
    ),
    "bounce": FaultKind(
        "kill a broker and start it again",
        {**ONE, "after": seconds(0.05, 3, optional=True)}, _on_broker("bounce"), 3,
    ),
    "pause": FaultKind("stop a broker's process as SIGSTOP does", ONE, _on_broker("pause"), 3),
    "blackhole": FaultKind(
        "drop all packets from and to a broker", ONE, _on_broker("blackhole"), 3
    ),
    "accept_then_reset": FaultKind(
        "let a broker accept connections and reset them", ONE, _on_broker("accept_then_reset"), 3
    ),
    "ready_then_close": FaultKind(
        "let a broker answer ApiVersions and then close the connection",
        ONE, _on_broker("ready_then_close"), 3,
    ),
    "go_silent": FaultKind("let a broker read everything and answer nothing", ONE,
                      _on_broker("go_silent"), 3),
    "repair": FaultKind("end a broker's faults", ONE, _on_broker("repair"), 5),
    "throttle": FaultKind(
        "let a broker throttle its clients in every response",
        {**ONE, "seconds": seconds(0.01, 1.0)}, _on_broker("throttle"),
    ),
    "slow_handshake": FaultKind(
        "let a broker answer ApiVersions late",
        {**ONE, "seconds": seconds(0.05, 5.0)}, _on_broker("slow_handshake"),
    ),
    "stale_metadata": FaultKind(
        "freeze a broker's metadata about brokers, leaders and epochs; with `deleted`, also about "
        "topics that are deleted or created",
        {**ONE, "on": FLAG, "deleted": replace(FLAG, drawn=False)}, _on_broker("stale_metadata"), 3,
    ),
    "zombie_leader": FaultKind(
        "cut a broker off from the other brokers, but not from clients, for `seconds`: it first "
        "answers nothing for `frozen` seconds, then with its old metadata; the controller fences "
        "it after `fenced` seconds",
        {**ONE, "frozen": seconds(0, 4, optional=True), "seconds": seconds(2, 12, optional=True),
         "fenced": seconds(0, 2, optional=True)},
        _on_broker("zombie_leader"), 4,
    ),
    "partition": FaultKind(
        "cut one client off from one broker",
        {**ONE, "client": CLIENT}, _on_broker("partition"), 3,
    ),
    "half_open": FaultKind(
        "let a broker's host lose its connections without a reset", ONE, _on_broker("half_open")
    ),
    "move_leader": FaultKind(
        "move the leadership of a partition to another in-sync broker",
        {"partition": PARTITION}, _move_leader, 4,
    ),
    "move": FaultKind(
        "stop all brokers and restart them at other addresses",
        {"after": seconds(0.1, 8), "old": choice("refused", "blackholed")},
        _on_broker("move"), 4,
    ),
    "replace_with_foreign": FaultKind(
        "replace the cluster at the bootstrap address by another one",
        {"after": seconds(0, 1, optional=True), "recycle_addresses": FLAG}, _replace, 1,
    ),
    "answer_empty_brokers": FaultKind(
        "answer metadata requests without any broker", {"on": FLAG},
        _on_broker("answer_empty_brokers"),
    ),
    "answer_129": FaultKind(
        "answer metadata requests with REBOOTSTRAP_REQUIRED", {"on": FLAG},
        _on_broker("answer_129"),
    ),
    "close_front_door": FaultKind(
        "let the bootstrap address refuse connections", {"on": FLAG}, _on_broker("close_front_door")
    ),
    "dns_change": FaultKind(
        "let a name resolve to other addresses; with an empty list, it doesn't resolve",
        {"name": NAME, "addresses": ADDRESSES}, _dns_change,
    ),
    "dns_silence": FaultKind(
        "let DNS queries for a name time out", {"name": NAME, "on": FLAG},
        lambda stage, a: stage.world.dns_silence(**a), 1,
    ),
    "change_link": FaultKind(
        "change latency, jitter, loss or bandwidth of all connections",
        {"latency": seconds(0, 0.1, optional=True), "jitter": seconds(0, 0.05, optional=True),
         "loss": SHARE, "bandwidth": BANDWIDTH},
        _change_link,
    ),
    "clock_jump": FaultKind("set the clients' wall clock forward or back", {"seconds": ANY_SECONDS},
                       lambda stage, a: stage.world.clock_jump(**a), 1),
    "heal": FaultKind("end every fault", {}, lambda stage, a: heal(stage), 1),
}  # fmt: skip
SHORT: dict[str, FaultKind] = {
    "exhaust": FaultKind(
        "let the clients' machine have no descriptors for sockets or name lookups, or no memory "
        "for responses, for `seconds`",
        {**dict.fromkeys(SHORTAGES, FLAG), "seconds": seconds(0.05, 3.0)}, _exhaust,
    ),
    **{name: HOSTILE[name] for name in ("trickle", "quota")},
}  # fmt: skip
"""Kinds of faults that take resources from clients or slow responses down, by name."""
VERBS: dict[str, FaultKind] = {**PLAIN, **HOSTILE, **MISROUTING_FAULTS, **APPLICATION, **SHORT}


def check(fault: Fault, scope: Scope) -> None:
    """Raise a `ScheduleError` with the reason if a fault is invalid."""
    verb = VERBS.get(fault.verb)
    if verb is None:
        raise ScheduleError(f"there is no verb {fault.verb!r}; there are: {', '.join(VERBS)}")
    if not is_number(fault.at) or fault.at < 0:
        raise ScheduleError(f"{fault.verb}: at must be 0 or more seconds, not {fault.at!r}")
    for name, value in fault.arguments.items():
        argument = verb.arguments.get(name)
        if argument is None:
            known = ", ".join(verb.arguments) or "none"
            raise ScheduleError(f"{fault.verb} has no argument {name!r} (it has: {known})")
        if not argument.allowed(value, scope):
            raise ScheduleError(f"{fault.verb}: {name} must be {argument.words}, not {value!r}")
    for name, argument in verb.arguments.items():
        if not argument.optional and name not in fault.arguments:
            raise ScheduleError(f"{fault.verb} needs {name}: {argument.words}")


def draw(
    rng: random.Random, at: float, scope: Scope, verbs: Mapping[str, FaultKind] = PLAIN
) -> Fault:
    """Draw one fault at random; its kind is one of `kinds`."""
    name = rng.choices(list(verbs), [v.weight for v in verbs.values()])[0]
    while True:
        arguments = {}
        for key, argument in verbs[name].arguments.items():
            if argument.drawn and (not argument.optional or rng.random() < 0.7):
                arguments[key] = argument.draw(rng, scope)
        if verbs[name].sound(arguments):
            return Fault(at, name, arguments)


def plan(fault: Fault, stage: Stage) -> None:
    """Schedule the injection of a fault at the fault's time."""
    act = VERBS[fault.verb].act
    stage.world.at(fault.at, lambda: act(stage, dict(fault.arguments)))


def heal(stage: Stage) -> None:
    """End every fault: restore the cluster, names and links; wall clocks remain as they are."""
    world, cluster = stage.world, stage.cluster
    world.lead_nowhere_else()
    for one in (*stage.left, cluster):
        one.lift_black_holes()
    cluster.heal()
    broker_faults.mend(cluster)
    world.dns_silence(BOOTSTRAP_NAME, False)
    world.dns_change(BOOTSTRAP_NAME, [cluster.front_door.address.host])
    world.change_link(**world.first_link)


def describe() -> str:
    """Return all kinds of faults with their arguments, for help texts."""
    lines = []
    for name, verb in VERBS.items():
        lines.append(f"{name}: {verb.doc}")
        for key, argument in verb.arguments.items():
            lines.append(f"    {key}: {argument.words}{' (optional)' * argument.optional}")
    return "\n".join(lines)
