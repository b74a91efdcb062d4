"""Describe the result of `odradek explain` in sentences and as plain data.

In: a client's `explain()`, and the state of each address. Out: text. Must not: send anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.cli.console.properties import UsageError
from odradek.clients.admin.reachability import OUT_OF_REACH, PARTLY, AddressReach, Reachability
from odradek.clients.missing_topics import did_you_mean
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.printable import cure, printable
from odradek.common.topic_names import check_topic

if TYPE_CHECKING:
    from odradek.clients.admin.reachability import TopicReach
    from odradek.clients.explain.explanation import Explanation

SHOWN = 10
"""Maximum number of listed addresses, topics or partitions; others are only counted."""


def checked_topic(name: str) -> None:
    """Raise a usage error for a name of `--topic` that brokers reject."""
    try:
        check_topic(name)
    except KafkaError as error:
        raise UsageError(f"--topic: {error}") from None


def trouble(found: Reachability, picture: Explanation) -> list[str]:
    """Return one line for each problem; none if all is well."""
    meanings = {a.address: a.meaning for a in picture.addresses}
    lines = []
    brokers = found.brokers
    failing = [a for a in brokers if a.error is not None]
    if failing and len(failing) < len(brokers):
        lines.append(f"{_answering(brokers)}.")
    lines += [_of_address(a, meanings.get(a.address)) for a in failing[:SHOWN]]
    lines += _more(failing)
    if found.absent:
        one = len(found.absent) == 1
        lines.append(
            f"Broker{'' if one else 's'} {_listed(found.absent)} {'holds' if one else 'hold'} "
            f"replicas, but {'is' if one else 'are'} not in the cluster: "
            f"{'it is' if one else 'they are'} not running, or fenced."
        )
    starts = [a for a in found.addresses if a.error is not None and not a.brokers]
    lines += [_of_address(a, meanings.get(a.address)) for a in starts[:SHOWN]]
    lines += _more(starts)
    lines += [
        (
            f"Brokers {_listed(a.brokers)} all advertise the same address, {a.address}: their "
            "advertised.listeners must differ."
        )
        for a in brokers
        if len(a.brokers) > 1
    ]
    lines += [_of_topic(topic, found.servers) for topic in found.topics[:SHOWN]]
    lines += _more(found.topics)
    if found.topics_error is not None and len(failing) < len(brokers):
        lines.append(f"Topics couldn't be described: {_first_line(found.topics_error)}")
    return [printable(line, limit=None) for line in lines]


def _of_address(a: AddressReach, meaning: str | None) -> str:
    who = f"Bootstrap address {a.address}"
    if a.brokers:
        who = f"Broker {_listed(a.brokers)} ({a.address})"
    line = f"{who} doesn't answer: {meaning or _first_line(a.error)}."
    if a.leads:
        noun = "partition" if a.leads == 1 else "partitions"
        line += f" It leads {a.leads} {noun}, which can't be written or read from here."
    return line


def _of_topic(topic: TopicReach, servers: tuple[str, ...]) -> str:
    if isinstance(topic.error, UnknownTopicOrPartitionError):
        made = cure(topic.topic, servers)
        return f"Topic {topic.topic} doesn't exist{did_you_mean(topic.near)}. {made}"
    if not topic.leaderless:
        return f"Topic {topic.topic}: {_first_line(topic.error)}"
    count, which = len(topic.leaderless), _listed(topic.leaderless)
    have = "has" if count == 1 else "have"
    return (
        f"Topic {topic.topic}: {count} of {topic.partitions} partitions {have} no leader "
        f"({which}); {'it' if count == 1 else 'they'} can't be written to or read from until one "
        f"of {'its' if count == 1 else 'their'} replicas is back."
    )


def _listed(numbers: tuple[int, ...]) -> str:
    left = len(numbers) - SHOWN
    return ", ".join(map(str, numbers[:SHOWN])) + (f" and {left} more" if left > 0 else "")


def _more(found: list[AddressReach] | tuple[TopicReach, ...]) -> list[str]:
    left = len(found) - SHOWN
    return [f"… and {left} more."] if left > 0 else []


def _first_line(error: KafkaError | None) -> str:
    return str(error).partition("\n")[0]


def verdict(found: Reachability | None, error: KafkaError | None, elapsed: float) -> str:
    """Return the last line: a summary with the elapsed time."""
    if found is None:
        return f"the cluster wasn't reached in {elapsed:.1f} s ({type(error).__name__})"
    if found.state == OUT_OF_REACH:
        return f"no broker answers ({elapsed:.1f} s)"
    partly = "partly: " if found.state == PARTLY else ""
    return f"{partly}{_answering(found.brokers)} ({elapsed:.1f} s)"


def _answering(brokers: tuple[AddressReach, ...]) -> str:
    count = sum(a.error is None for a in brokers)
    if count < len(brokers):
        return f"{count} of {len(brokers)} brokers answer{'s' if count == 1 else ''}"
    return "the only broker answers" if count == 1 else f"all {count} brokers answer"


def as_dict(
    picture: Explanation, found: Reachability | None, error: KafkaError | None, elapsed: float
) -> dict[str, Any]:
    """Return the result as plain data; `reached`: at least one broker answers."""
    state = OUT_OF_REACH if found is None else found.state
    return {
        "state": state,
        "reached": state != OUT_OF_REACH,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "elapsed": round(elapsed, 3),
        "trouble": [] if found is None else trouble(found, picture),
        "reach": [] if found is None else [_plain_address(a) for a in found.addresses],
        "absent_brokers": [] if found is None else list(found.absent),
        "topics": [] if found is None else [_plain_topic(t) for t in found.topics],
        **picture.to_dict(),
    }


def _plain_address(a: AddressReach) -> dict[str, Any]:
    return {
        "address": a.address,
        "bootstrap": a.bootstrap,
        "brokers": list(a.brokers),
        "error": _named(a.error),
        "leads": a.leads,
    }


def _plain_topic(t: TopicReach) -> dict[str, Any]:
    return {
        "topic": t.topic,
        "partitions": t.partitions,
        "leaderless": list(t.leaderless),
        "error": _named(t.error),
        "near": list(t.near),
    }


def _named(error: KafkaError | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"
