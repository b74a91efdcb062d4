"""Faults as data: which verbs there are, what they take, and how one is carried out in a world.

In: `Fault` values, written by hand, drawn from a seed or read from a schedule file. Out: the verb
of the cluster or world, called at its time. `VERBS` is the one table; schedules are checked
against it, random ones are drawn from it. Must not: know clients beyond their names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.simulation.cluster import SimulatedCluster
from odradek.simulation.world import World

BOOTSTRAP_NAME = "kafka.simulated"
FRONT_DOOR = "front-door"
NOWHERE = "10.255.255.1"
"""An address at which nothing ever listens."""


class ScheduleError(ValueError):
    """A fault or schedule that can't be carried out as it is written."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One verb with its arguments, `at` virtual seconds."""

    at: float
    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        return f"{self.at:.3f} s {self.verb}({words})"


@dataclass(slots=True)
class Stage:
    """Where faults happen: the world, and the cluster that is behind the front door now."""

    world: World
    cluster: SimulatedCluster
    left: list[SimulatedCluster] = field(default_factory=list)
    """Clusters that were replaced by others."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the arguments of a schedule may name."""

    brokers: int
    partitions: int
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: how a text file's value is checked, and how one is drawn."""

    words: str
    """What is allowed, to be read in an error and in help."""
    allowed: Callable[[Any, Scope], bool]
    draw: Callable[[random.Random, Scope], Any]
    optional: bool = False


Act = Callable[[Stage, dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it does, its arguments, how often it is drawn."""

    doc: str
    arguments: Mapping[str, Argument]
    act: Act
    weight: int = 2


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _seconds(low: float, high: float, *, optional: bool = False) -> Argument:
    return Argument(
        "seconds, 0 or more",
        lambda v, _: _is_number(v) and 0 <= v < 1e6,
        lambda rng, _: round(rng.uniform(low, high), 3),
        optional,
    )


def _choice(*allowed: str) -> Argument:
    return Argument(
        " or ".join(repr(a) for a in allowed),
        lambda v, _: v in allowed,
        lambda rng, _: rng.choice(allowed),
        optional=True,
    )


def _draw_addresses(rng: random.Random, scope: Scope) -> list[str]:
    pool = [FRONT_DOOR, NOWHERE, *(f"broker-{i}" for i in range(1, scope.brokers + 1))]
    return rng.sample(pool, rng.randint(0, min(3, len(pool))))


def _are_addresses(value: Any, scope: Scope) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(a, str)
        and (
            a == FRONT_DOOR
            or a.replace(".", "").isdecimal()
            or a in {f"broker-{i}" for i in range(1, scope.brokers + 1)}
        )
        for a in value
    )


_BROKER = Argument(
    "a broker's id, from 1 on",
    lambda v, scope: _whole(v, 1, scope.brokers),
    lambda rng, scope: rng.randint(1, scope.brokers),
)
_PARTITION = Argument(
    "a partition's number, from 0 on",
    lambda v, scope: _whole(v, 0, scope.partitions - 1),
    lambda rng, scope: rng.randrange(scope.partitions),
)
_CLIENT = Argument(
    "a client's name in this schedule",
    lambda v, scope: v in scope.clients,
    lambda rng, scope: rng.choice(scope.clients),
)
_FLAG = Argument(
    "true or false",
    lambda v, _: isinstance(v, bool),
    lambda rng, _: rng.random() < 0.7,
    optional=True,
)
_NAME = Argument(
    "a host name", lambda v, _: isinstance(v, str) and v != "", lambda *_: BOOTSTRAP_NAME
)
_ADDRESSES = Argument(
    f"a list of {FRONT_DOOR!r}, 'broker-N' and IP addresses", _are_addresses, _draw_addresses
)
_ANY_SECONDS = Argument(
    "seconds, negative ones set the clock back",
    lambda v, _: _is_number(v) and abs(v) < 1e6,
    lambda rng, _: round(rng.uniform(-3600, 3600), 3),
)
_SHARE = Argument(
    "a probability, 0 to 1",
    lambda v, _: _is_number(v) and 0 <= v <= 1,
    lambda rng, _: round(rng.uniform(0, 0.3), 3),
    optional=True,
)
_BANDWIDTH = Argument(
    "bytes in a second (byte mode only)",
    lambda v, _: v is None or (_is_number(v) and v > 0),
    lambda rng, _: rng.choice([None, None, 20_000, 1_000_000]),
    optional=True,
)
_ONE = {"i": _BROKER}


def _on_broker(method: str) -> Act:
    return lambda stage, a: getattr(stage.cluster, method)(**a)


def _move_leader(stage: Stage, a: dict[str, Any]) -> None:
    for name, topic in stage.cluster.topics.items():
        if a["partition"] < len(topic.partitions):
            stage.cluster.hand_over(name, a["partition"])


def _replace(stage: Stage, a: dict[str, Any]) -> None:
    stage.left.append(stage.cluster)
    stage.cluster = stage.cluster.replace_with_foreign(
        cluster_id=f"{stage.cluster.cluster_id}-foreign", **a
    )


def _dns_change(stage: Stage, a: dict[str, Any]) -> None:
    cluster = stage.cluster
    known = {FRONT_DOOR: cluster.front_door.address.host}
    known |= {f"broker-{i}": b.address.host for i, b in cluster.brokers.items()}
    stage.world.dns_change(a["name"], [known.get(text, text) for text in a["addresses"]])


def _change_link(stage: Stage, a: dict[str, Any]) -> None:
    stage.world.change_link(**a)


VERBS: dict[str, Verb] = {
    "crash": Verb(
        "kill a broker; it stays down until it is restarted or the faults end",
        _ONE, _on_broker("crash"), 3,
    ),
    "stop": Verb("stop a broker in order: it hands its leaderships over", _ONE, _on_broker("stop")),
    "restart": Verb(
        "start a broker that is down",
        {**_ONE, "after": _seconds(0, 2, optional=True), "new_address": _FLAG},
        _on_broker("restart"),
    ),
    "bounce": Verb(
        "kill a broker and start it again",
        {**_ONE, "after": _seconds(0.05, 3, optional=True)}, _on_broker("bounce"), 3,
    ),
    "pause": Verb("stop a broker's process as SIGSTOP does", _ONE, _on_broker("pause"), 3),
    "blackhole": Verb("take a broker's network away", _ONE, _on_broker("blackhole"), 3),
    "accept_then_reset": Verb(
        "let a broker accept dials and reset them", _ONE, _on_broker("accept_then_reset"), 3
    ),
    "ready_then_close": Verb(
        "let a broker answer ApiVersions and then close", _ONE, _on_broker("ready_then_close"), 3
    ),
    "go_silent": Verb("let a broker read everything and answer nothing", _ONE,
                      _on_broker("go_silent"), 3),
    "repair": Verb("end a broker's misbehaviour", _ONE, _on_broker("repair"), 5),
    "throttle": Verb(
        "let a broker ask its clients to keep quiet with every answer",
        {**_ONE, "seconds": _seconds(0.01, 1.0)}, _on_broker("throttle"),
    ),
    "slow_handshake": Verb(
        "let a broker answer ApiVersions late",
        {**_ONE, "seconds": _seconds(0.05, 5.0)}, _on_broker("slow_handshake"),
    ),
    "stale_metadata": Verb(
        "freeze what a broker says of brokers, leaders and epochs",
        {**_ONE, "on": _FLAG}, _on_broker("stale_metadata"), 3,
    ),
    "partition": Verb(
        "cut one client off from one broker",
        {**_ONE, "client": _CLIENT}, _on_broker("partition"), 3,
    ),
    "half_open": Verb(
        "let a broker's host forget its connections without a word", _ONE, _on_broker("half_open")
    ),
    "move_leader": Verb(
        "hand a leadership over in order", {"partition": _PARTITION}, _move_leader, 4
    ),
    "move": Verb(
        "take all brokers down and bring them back elsewhere",
        {"after": _seconds(0.1, 8), "old": _choice("refused", "blackholed")},
        _on_broker("move"), 4,
    ),
    "replace_with_foreign": Verb(
        "put another cluster behind the same bootstrap address",
        {"after": _seconds(0, 1, optional=True), "recycle_addresses": _FLAG}, _replace, 1,
    ),
    "answer_empty_brokers": Verb(
        "answer metadata requests without any broker", {"on": _FLAG},
        _on_broker("answer_empty_brokers"),
    ),
    "answer_129": Verb(
        "answer metadata requests with REBOOTSTRAP_REQUIRED", {"on": _FLAG},
        _on_broker("answer_129"),
    ),
    "close_front_door": Verb(
        "let the bootstrap address refuse dials", {"on": _FLAG}, _on_broker("close_front_door")
    ),
    "dns_change": Verb(
        "let a name lead elsewhere; an empty list: it doesn't resolve",
        {"name": _NAME, "addresses": _ADDRESSES}, _dns_change,
    ),
    "dns_silence": Verb(
        "answer no question for a name", {"name": _NAME, "on": _FLAG},
        lambda stage, a: stage.world.dns_silence(**a), 1,
    ),
    "change_link": Verb(
        "change latency, jitter, loss or bandwidth of all connections",
        {"latency": _seconds(0, 0.1, optional=True), "jitter": _seconds(0, 0.05, optional=True),
         "loss": _SHARE, "bandwidth": _BANDWIDTH},
        _change_link,
    ),
    "clock_jump": Verb("set the clients' wall clock forward or back", {"seconds": _ANY_SECONDS},
                       lambda stage, a: stage.world.clock_jump(**a), 1),
    "heal": Verb("end every fault", {}, lambda stage, a: heal(stage), 1),
}  # fmt: skip
_NAMES = list(VERBS)
_WEIGHTS = [v.weight for v in VERBS.values()]


def check(fault: Fault, scope: Scope) -> None:
    """Raise a `ScheduleError` that says what is wrong with a fault, if something is."""
    verb = VERBS.get(fault.verb)
    if verb is None:
        raise ScheduleError(f"there is no verb {fault.verb!r}; there are: {', '.join(VERBS)}")
    if not _is_number(fault.at) or fault.at < 0:
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


def draw(rng: random.Random, at: float, scope: Scope) -> Fault:
    """A random fault."""
    name = rng.choices(_NAMES, _WEIGHTS)[0]
    arguments = {}
    for key, argument in VERBS[name].arguments.items():
        if not argument.optional or rng.random() < 0.7:
            arguments[key] = argument.draw(rng, scope)
    return Fault(at, name, arguments)


def plan(fault: Fault, stage: Stage) -> None:
    """Have a fault carried out at its time."""
    act = VERBS[fault.verb].act
    stage.world.at(fault.at, lambda: act(stage, dict(fault.arguments)))


def heal(stage: Stage) -> None:
    """End every fault: cluster, names and links are as in the beginning; the clock stays."""
    world, cluster = stage.world, stage.cluster
    for one in (*stage.left, cluster):
        one.lift_black_holes()
    cluster.heal()
    world.dns_silence(BOOTSTRAP_NAME, False)
    world.dns_change(BOOTSTRAP_NAME, [cluster.front_door.address.host])
    world.change_link(**world.first_link)


def describe() -> str:
    """The verbs with their arguments, for help texts."""
    lines = []
    for name, verb in VERBS.items():
        lines.append(f"{name}: {verb.doc}")
        for key, argument in verb.arguments.items():
            lines.append(f"    {key}: {argument.words}{' (optional)' * argument.optional}")
    return "\n".join(lines)
