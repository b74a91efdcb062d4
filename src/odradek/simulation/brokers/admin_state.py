"""Hold the state that a simulated cluster has for admin clients only.

In: values that handlers of admin requests store. Out: the same values, from any broker of the
cluster. Simplified: options, ACLs, quotas, passwords and tokens are stored and returned, and have
no effect. Topics, groups and transactions are elsewhere. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odradek.common.errors import BrokerError
from odradek.common.types import TopicPartition
from odradek.simulation.brokers.topic_options import TOPIC_OPTIONS

I = TypeVar("I")  # noqa: E741  # an item
R = TypeVar("R")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's type numbers of the resources that have a configuration."""
LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
DEFAULTS: dict[int, dict[str, tuple[str, int]]] = {
    TOPIC: TOPIC_OPTIONS,
    BROKER: {
        "auto.create.topics.enable": ("false", 1),
        "log.retention.ms": ("604800000", 5),
        "num.io.threads": ("8", 3),
    },
    BROKER_LOGGER: {"root": ("INFO", 2), "kafka.server.KafkaApis": ("INFO", 2)},
    CLIENT_METRICS: {"interval.ms": ("300000", 3), "match": ("", 7), "metrics": ("", 7)},
    GROUP: {"consumer.heartbeat.interval.ms": ("5000", 3)},
}
"""Options by resource type: default value, and Kafka's number for the value's type."""
BOOLEAN, DOUBLE, LIST, WHOLE_NUMBERS = 1, 6, 7, (3, 4, 5)
FEATURES = {"group.version": (0, 1), "share.version": (0, 1), "transaction.version": (0, 2)}
LOG_DIRS = ("/simulated/d1", "/simulated/d2")
TOKEN_LIFE = 7 * 86400.0
"""Maximum lifetime of a token in seconds; a token that isn't renewed expires after a day."""


@dataclass(slots=True)
class SimulatedToken:
    """A delegation token."""

    token_id: str
    hmac: bytes
    owner: tuple[str, str]
    renewers: tuple[tuple[str, str], ...]
    issued: int
    expires: int
    at_most: int


@dataclass(slots=True)
class AdminState:
    """State of the cluster: all brokers see a change at the same time."""

    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    acls: dict[tuple[Any, ...], None] = field(default_factory=dict)
    scram: dict[str, dict[int, tuple[int, bytes, bytes]]] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    tokens: list[SimulatedToken] = field(default_factory=list)
    features: dict[str, int] = field(default_factory=lambda: {"group.version": 1})
    features_epoch: int = 1
    reassignments: dict[TopicPartition, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Partitions that are being reassigned, with their old and new replicas."""
    places: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """The log directories of replicas that were moved between directories."""
    share_offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    unregistered: set[int] = field(default_factory=set)
    voters: set[tuple[int, bytes]] = field(default_factory=set)
    """Controllers that are voters in addition to the brokers."""
    move_time: float = 0.2
    """Duration of a reassignment of replicas in seconds."""

    def reach_level(self, feature: str, level: int) -> None:
        """Set the finalized level of a feature."""
        self.features[feature] = level
        self.features_epoch += 1

    def copied(self, resource: tuple[int, str]) -> dict[str, str]:
        """Return a copy, which callers may modify, of a resource's changed options."""
        return dict(self.configs.get(resource, {}))


def each(
    items: Iterable[I], do: Callable[[I], Any], result: Callable[[I, int, str | None, Any], R]
) -> list[R]:
    """Call `do` for each item, and build one `result` per item from its value or error."""
    made = []
    for item in items:
        try:
            value = do(item)
        except BrokerError as error:
            code = error.code if error.code is not None else -1
            made.append(result(item, code, str(error), None))
        else:
            made.append(result(item, 0, None, value))
    return made
