"""Define the options of group consumers, and the checks that involve several of them, as in Java.

Out: `GROUP_OPTIONS`, which `table` combines with other options, and `check_group`, which checks all
values. Must not: store values of a client, or know more than the names of assignors.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from odradek.common.errors import ConfigurationError
from odradek.common.options.values import (
    INT_MAX,
    OF_CONSUMERS,
    Option,
    boolean,
    choice,
    milliseconds,
    owned,
    reads,
    sent_name,
    unset,
)

CLASSIC, NEW = "classic", "consumer"
"""Values of `group.protocol`."""
ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Names of the assignors, by the last part of their Java class names."""
JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
NOT_WITH_NEW = {
    "session.timeout.ms": "the broker sets it (group.consumer.session.timeout.ms)",
    "heartbeat.interval.ms": "the broker sets it (group.consumer.heartbeat.interval.ms)",
    "partition.assignment.strategy": "the broker assigns the partitions; use group.remote.assignor",
}
NOT_WITH_CLASSIC = {
    "group.remote.assignor": (
        "the members assign the partitions; use partition.assignment.strategy"
    ),
}


@reads("list", f"{', '.join(ASSIGNORS.values())}, separated by commas, or objects")
def assignors(name: str, value: Any) -> tuple[Any, ...]:
    """Read assignors: names, Java class names, or objects or classes of the user."""
    if isinstance(value, str):
        value = value.split(",")
    elif not isinstance(value, list | tuple):
        value = [value]
    found = [_assignor(name, v) for v in value if not isinstance(v, str) or v.strip()]
    if not found:
        raise ConfigurationError(
            f"{name} must name at least one assignor: {', '.join(ASSIGNORS.values())}"
        )
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
                f"{name}: unknown assignor {value.strip()!r}; use "
                f"{', '.join(ASSIGNORS.values())}, or an object with a name and assign()"
            )
        return known
    if isinstance(value, type):
        value = value()
    if not isinstance(getattr(value, "name", None), str) or not callable(
        getattr(value, "assign", None)
    ):
        raise ConfigurationError(
            f"{name}: {value!r} isn't an assignor: it needs a name, a protocol and assign()"
        )
    return value


class AnyName(str):
    """A `group.instance.id` that isn't checked, because clients of `odradek.compat` accept any."""

    __slots__ = ()


@reads("text", "1 to 249 letters (a to z, A to Z), digits, dots, dashes and underscores")
def instance_id(name: str, value: Any) -> str:
    """Read a `group.instance.id`, which Java's client checks like a topic name."""
    # Imported here, because most consumers have no group.instance.id.
    from odradek.common.topic_names import is_topic_name

    found = sent_name(name, value)
    if isinstance(value, AnyName) or is_topic_name(found):
        return found
    raise ConfigurationError(
        f"{name} must be {instance_id.values}, and neither . nor .., not {found!r:.80}. Set a "
        f"fixed name for each member, for example {name}=worker-1"
    )


GROUP_OPTIONS = owned(
    OF_CONSUMERS,
    unset("group.id", sent_name, "high").says(
        "The consumer joins this group: it shares the partitions of its topics with the other "
        "members, and commits offsets to the group."
    ),
    unset("group.instance.id", instance_id, "medium", "KIP-345").says(
        "A member with this name is static: if it restarts within session.timeout.ms, it gets "
        "its partitions back without a rebalance (with group.protocol=consumer, if it was closed "
        "and not killed). close() keeps its partitions. Each member needs a "
        "different name, but not . or .. alone."
    ),
    Option("group.protocol", choice(CLASSIC, NEW), CLASSIC, "high", "KIP-848").says(
        "With classic, a member of the group assigns the partitions; with consumer, the broker "
        "does (KIP-848)."
    ),
    unset("group.remote.assignor", sent_name, "medium", "KIP-848").says(
        "With group.protocol=consumer, the broker uses this server-side assignor, uniform or "
        "range. If this isn't set, the broker chooses one."
    ),
    Option(
        "partition.assignment.strategy",
        assignors,
        ("range", "cooperative-sticky"),
        "medium",
        "KIP-429",
        librdkafka="range,roundrobin",
    ).says(
        "With group.protocol=classic, the member offers these assignors in order of preference: "
        "range, roundrobin, sticky, cooperative-sticky, Java's class names, or objects with a "
        "name and assign()."
    ),
    Option("session.timeout.ms", milliseconds(1, INT_MAX), 45.0, "high").says(
        "The coordinator removes a member that has sent no heartbeat for this many milliseconds. "
        "With group.protocol=consumer, the broker sets this (group.consumer.session.timeout.ms)."
    ),
    Option("heartbeat.interval.ms", milliseconds(1, INT_MAX), 3.0, "high").says(
        "A member sends a heartbeat at this interval in milliseconds, which must be below "
        "session.timeout.ms. With group.protocol=consumer, the broker sets this "
        "(group.consumer.heartbeat.interval.ms)."
    ),
    Option("max.poll.interval.ms", milliseconds(1, INT_MAX), 300.0, "medium").says(
        "If the application doesn't ask for records for this many milliseconds, the member "
        "leaves its group, so that other members can read its partitions. If group.instance.id is "
        "set, they get its partitions only after the session timeout."
    ),
    Option("enable.auto.commit", boolean, True, "medium").says(
        "With true, the consumer commits the offsets of finished records by itself; a record is "
        "finished when the application asks for more after it. If auto.offset.reset finds a "
        "position other than the beginning, the consumer commits it at once. With false, the "
        "consumer commits nothing by itself: after a restart or a rebalance, a partition without "
        "a commit starts at auto.offset.reset again, and with latest it skips the records "
        "written in between. commit() without arguments commits the positions of all partitions, "
        "even those that returned no records. Without group.id, this option is off."
    ),
    Option("auto.commit.interval.ms", milliseconds(), 5.0).says(
        "With enable.auto.commit, the consumer commits at this interval in milliseconds, and "
        "also before it gives up partitions and when it is closed."
    ),
    Option("exclude.internal.topics", boolean, True, "medium").says(
        "With true, the pattern of subscribe() never matches Kafka's internal topics, such as "
        "__consumer_offsets."
    ),
)

GROUP_NAMES = frozenset(o.name for o in GROUP_OPTIONS)


def check_group(values: dict[str, Any], given: Collection[str]) -> None:
    """Check group options against each other, as Java does."""
    if values["group.id"] is None:
        if "enable.auto.commit" in given and values["enable.auto.commit"]:
            raise ConfigurationError("enable.auto.commit=true needs a group.id")
        values["enable.auto.commit"] = False
    new = values["group.protocol"] == NEW
    for name, advice in (NOT_WITH_NEW if new else NOT_WITH_CLASSIC).items():
        if name in given and values[name] is not None:
            raise ConfigurationError(
                f"{name} can't be set with group.protocol={values['group.protocol']}: {advice}"
            )
    if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
        raise ConfigurationError(
            f"heartbeat.interval.ms ({values['heartbeat.interval.ms'] * 1000:g}) must be below "
            f"session.timeout.ms ({values['session.timeout.ms'] * 1000:g}): set it to at most a "
            "third of that, so that single lost heartbeats don't end the session"
        )
