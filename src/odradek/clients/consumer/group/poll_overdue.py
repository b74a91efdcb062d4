"""Describe a member that gave its partitions up because the application doesn't call `poll()`.

In: the consumer's configuration. Out: the same texts for the log, `health()`, `explain()` and
errors of commits. Must not: know whether a member is overdue.
"""

from __future__ import annotations

from odradek.common.config import Config
from odradek.common.options.group import NEW

OVERDUE_CURE = (
    "Call poll() again. If the work between two polls takes that long, raise max.poll.interval.ms "
    "or lower max.poll.records. In an event loop, run blocking calls with asyncio.to_thread()."
)


def overdue(config: Config) -> str:
    """Return a text which says that `poll()` wasn't called in time."""
    return f"poll() wasn't called for max.poll.interval.ms ({config['max.poll.interval.ms']:g} s)"


def why_overdue(config: Config) -> str:
    """Return the text of `overdue` and the consequence for the member.

    A static member keeps its place until its session times out (KIP-345).
    """
    return f"{overdue(config)}, so {_consequence(config)}"


def _consequence(config: Config) -> str:
    group, instance = config["group.id"], config["group.instance.id"]
    if instance is None:
        return f"the consumer has left group {group!r}"
    ends = f"session.timeout.ms ({config['session.timeout.ms']:g} s)"
    if config["group.protocol"] == NEW:
        ends = "the broker's group.consumer.session.timeout.ms"
    return (
        f"group {group!r} assigns its partitions to other members after {ends}, because the "
        f"consumer is static (group.instance.id={instance})"
    )
