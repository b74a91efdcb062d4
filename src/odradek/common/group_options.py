"""The options of group consumers, and how Java checks them against each other.

Out: `GROUP_OPTIONS`, which `config` adds to the others, and `check_group`, which it calls once all
values are there. Must not: hold values of a client, or know assignors as anything but names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from odradek.common.errors import ConfigurationError
from odradek.common.option_values import (
    INT_MAX,
    OF_CONSUMERS,
    Option,
    boolean,
    choice,
    milliseconds,
    optional,
    sent_name,
)

CLASSIC, NEW = "classic", "consumer"
"""Values of `group.protocol`."""
ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""The ends of Java's class names, and what groups call those assignors."""
JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
NOT_WITH_NEW = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
)
NOT_WITH_CLASSIC = ("group.remote.assignor",)


def assignors(name: str, value: Any) -> tuple[Any, ...]:
    """Assignors by name, by Java's class name, or as objects (or classes) of the user's."""
    if isinstance(value, str):
        value = value.split(",")
    elif not isinstance(value, list | tuple):
        value = [value]
    found = [_assignor(name, v) for v in value if not isinstance(v, str) or v.strip()]
    if not found:
        raise ConfigurationError(f"{name} names no assignor")
    names = [v if isinstance(v, str) else v.name for v in found]
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{name} names an assignor twice: {', '.join(names)}")
    return tuple(found)


def _assignor(name: str, value: Any) -> Any:
    if isinstance(value, str):
        short = value.strip().removeprefix(JAVA_PACKAGE)
        known = ASSIGNORS.get(short, short.lower().replace("_", "-"))
        known = {"round-robin": "roundrobin"}.get(known, known)
        if known not in ASSIGNORS.values():
            raise ConfigurationError(
                f"{name}: there is no assignor {value.strip()!r}; there are "
                f"{', '.join(ASSIGNORS.values())}, and objects of yours"
            )
        return known
    if isinstance(value, type):
        value = value()
    if not isinstance(getattr(value, "name", None), str) or not callable(
        getattr(value, "assign", None)
    ):
        raise ConfigurationError(
            f"{name}: {value!r} is no assignor: it needs a name, a protocol and assign()"
        )
    return value


GROUP_OPTIONS: dict[str, Option] = {
    o.name: o
    for o in (
        Option("group.id", optional(sent_name), None, "The group to belong to.", OF_CONSUMERS),
        Option(
            "group.instance.id",
            optional(sent_name),
            None,
            "A name that outlives restarts: the group keeps this member's partitions for "
            "session.timeout.ms. Each member needs one of its own.",
            OF_CONSUMERS,
            "KIP-345",
        ),
        Option(
            "group.protocol",
            choice(CLASSIC, NEW),
            CLASSIC,
            "classic: a member of the group divides the partitions; consumer: the broker does.",
            OF_CONSUMERS,
            "KIP-848",
        ),
        Option(
            "group.remote.assignor",
            optional(sent_name),
            None,
            "With group.protocol=consumer: the broker's assignor, uniform or range; its own choice "
            "where none is named.",
            OF_CONSUMERS,
            "KIP-848",
        ),
        Option(
            "partition.assignment.strategy",
            assignors,
            ("range", "cooperative-sticky"),
            "Assignors this member can do, the one it likes best first: range, roundrobin, sticky, "
            "cooperative-sticky, Java's class names, or objects.",
            OF_CONSUMERS,
            "KIP-429",
        ),
        Option(
            "session.timeout.ms",
            milliseconds(1, INT_MAX),
            45.0,
            "Without a heartbeat for so long a member is put out of its group.",
            OF_CONSUMERS,
        ),
        Option(
            "heartbeat.interval.ms",
            milliseconds(1, INT_MAX),
            3.0,
            "How often one goes.",
            OF_CONSUMERS,
        ),
        Option(
            "max.poll.interval.ms",
            milliseconds(1, INT_MAX),
            300.0,
            "A member whose application doesn't poll for so long leaves its group.",
            OF_CONSUMERS,
        ),
        Option(
            "enable.auto.commit",
            boolean,
            True,
            "Commit what the application is through with, now and then; off without group.id.",
            OF_CONSUMERS,
        ),
        Option("auto.commit.interval.ms", milliseconds(), 5.0, "How often.", OF_CONSUMERS),
        Option(
            "exclude.internal.topics",
            boolean,
            True,
            "Whether a pattern leaves out the topics that Kafka keeps for itself.",
            OF_CONSUMERS,
        ),
    )
}


def check_group(values: dict[str, Any], given: Collection[str]) -> None:
    """Java's checks across options."""
    if values["group.id"] is None:
        if "enable.auto.commit" in given and values["enable.auto.commit"]:
            raise ConfigurationError("enable.auto.commit can't be true without group.id")
        values["enable.auto.commit"] = False
    new = values["group.protocol"] == NEW
    for name in NOT_WITH_NEW if new else NOT_WITH_CLASSIC:
        if name in given and values[name] is not None:
            advice = (
                "the broker decides it there, by its group.consumer.* settings"
                if new
                else "the members divide the partitions there, see partition.assignment.strategy"
            )
            raise ConfigurationError(
                f"{name} can't be set with group.protocol={values['group.protocol']}: {advice}"
            )
    if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
        raise ConfigurationError("heartbeat.interval.ms must be below session.timeout.ms")
