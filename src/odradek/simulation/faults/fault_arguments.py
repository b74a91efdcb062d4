"""Define faults: their kinds and arguments, and how arguments are checked and drawn.

In: values of a schedule file, or a random generator. Out: the allowed values, as text and as a
check. Must not execute faults; a kind only refers to the function that does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.world.world import World

TOPIC = "t"
"""Name of the first topic of each schedule."""
BOOTSTRAP_NAME = "kafka.simulated"
FRONT_DOOR = "front-door"
UNUSED_ADDRESS = "10.255.255.1"
"""An address at which nothing ever listens."""


class ScheduleError(ValueError):
    """Error for an invalid fault or schedule."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault with its arguments, injected at the virtual time `at` (in seconds)."""

    at: float
    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        return f"{self.at:.3f} s {self.verb}({words})"


@dataclass(slots=True)
class Stage:
    """The objects that faults act on: the simulation, the cluster at the bootstrap address now."""

    world: World
    cluster: SimulatedCluster
    left: list[SimulatedCluster] = field(default_factory=list)
    """Clusters that other clusters have replaced."""
    bystanders: list[SimulatedCluster] = field(default_factory=list)
    """Other clusters to which a fault may misroute connections."""
    members: dict[str, Any] = field(default_factory=dict)
    """The members of the schedule's group by name, for `application_faults`."""
    quiet_until: float = 0.0
    """Time until which the run pauses its writes to the group's topics."""
    hits: Counter[str] = field(default_factory=Counter)
    """How often faults had an effect, by a name of the effect."""

    def be_quiet(self, seconds: float) -> None:
        """Pause the run's writes to the group's topics for this many seconds."""
        self.quiet_until = max(self.quiet_until, self.world.now + seconds)

    def lives(self, topic: str) -> list[bytes]:
        """Return the ids of all topics that have had this name, in the order of their creation."""
        cluster = self.cluster
        there = [cluster.topics[topic]] if topic in cluster.topics else []
        return [one.id for one in (*cluster.deleted, *there) if one.name == topic]

    def replace_cluster(self, **how: Any) -> None:
        """Put a different cluster with the same topics at the bootstrap address."""
        old = self.cluster
        self.left.append(old)
        self.cluster = old.replace_with_foreign(cluster_id=f"{old.cluster_id}-foreign", **how)
        for topic in old.deleted:
            if topic.name not in self.cluster.topics:
                self.cluster.create_topic(topic.name, len(topic.partitions))


@dataclass(frozen=True, slots=True)
class Scope:
    """Names and numbers that a schedule's arguments may contain: brokers, topics, clients."""

    brokers: int
    partitions: int
    clients: tuple[str, ...]
    topics: tuple[str, ...] = ()
    """Names of topics in addition to the first one."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kind of fault: how values are checked, and how random values are drawn."""

    words: str
    """The allowed values, as text for error messages and help."""
    allowed: Callable[[Any, Scope], bool]
    draw: Callable[[random.Random, Scope], Any]
    optional: bool = False
    drawn: bool = True
    """Whether random faults may set this argument; a family of faults may override that."""


Act = Callable[[Stage, dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault: its effect, its arguments, and how often random schedules contain it."""

    doc: str
    arguments: Mapping[str, Argument]
    act: Act
    weight: int = 2
    sound: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Whether a combination of arguments makes sense; random faults have no other combination."""


def is_number(value: Any) -> bool:
    """Return whether a value from a schedule file is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer_between(value: Any, low: int, high: int) -> bool:
    """Return whether a value is an integer in this range."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def seconds(low: float, high: float, *, optional: bool = False) -> Argument:
    """Return an argument for a duration; random values are between `low` and `high`."""
    return Argument(
        "seconds, 0 or more",
        lambda v, _: is_number(v) and 0 <= v < 1e6,
        lambda rng, _: round(rng.uniform(low, high), 3),
        optional,
    )


def choice(*allowed: str) -> Argument:
    """Return an argument that allows only these words."""
    return Argument(
        " or ".join(repr(a) for a in allowed),
        lambda v, _: v in allowed,
        lambda rng, _: rng.choice(allowed),
        optional=True,
    )


def _draw_addresses(rng: random.Random, scope: Scope) -> list[str]:
    pool = [FRONT_DOOR, UNUSED_ADDRESS, *(f"broker-{i}" for i in range(1, scope.brokers + 1))]
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


BROKER = Argument(
    "a broker's id, from 1 on",
    lambda v, scope: is_integer_between(v, 1, scope.brokers),
    lambda rng, scope: rng.randint(1, scope.brokers),
)
PARTITION = Argument(
    "a partition's number, from 0 on",
    lambda v, scope: is_integer_between(v, 0, scope.partitions - 1),
    lambda rng, scope: rng.randrange(scope.partitions),
)
CLIENT = Argument(
    "a client's name in this schedule",
    lambda v, scope: v in scope.clients,
    lambda rng, scope: rng.choice(scope.clients),
)
FLAG = Argument(
    "true or false",
    lambda v, _: isinstance(v, bool),
    lambda rng, _: rng.random() < 0.7,
    optional=True,
)
NAME = Argument(
    "a host name", lambda v, _: isinstance(v, str) and v != "", lambda *_: BOOTSTRAP_NAME
)
ADDRESSES = Argument(
    f"a list of {FRONT_DOOR!r}, 'broker-N' and IP addresses", _are_addresses, _draw_addresses
)
ANY_SECONDS = Argument(
    "seconds, negative ones set the clock back",
    lambda v, _: is_number(v) and abs(v) < 1e6,
    lambda rng, _: round(rng.uniform(-3600, 3600), 3),
)
SHARE = Argument(
    "a probability, 0 to 1",
    lambda v, _: is_number(v) and 0 <= v <= 1,
    lambda rng, _: round(rng.uniform(0, 0.3), 3),
    optional=True,
)
BANDWIDTH = Argument(
    "bytes in a second (byte mode only)",
    lambda v, _: v is None or (is_number(v) and v > 0),
    lambda rng, _: rng.choice([None, None, 20_000, 1_000_000]),
    optional=True,
)
TOPIC_NAME = Argument(
    "one of the schedule's topics [default: the first]",
    lambda v, scope: v in (TOPIC, *scope.topics),
    lambda rng, scope: rng.choice((TOPIC, *scope.topics)),
    optional=True,
    drawn=False,
)
ONE = {"i": BROKER}
