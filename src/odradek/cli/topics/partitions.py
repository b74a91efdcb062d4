"""Parse partitions on the command line, such as `flights` (all) or `flights:0,2`.

In: arguments. Out: partitions. Must not: leave out missing partitions, which requests report.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import MOST_INT32, whole_number
from odradek.cli.frame.commands import AdminRun
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition


def parse_scope(words: Iterable[str]) -> dict[str, list[int] | None]:
    """Return partition numbers by topic, None for all; raises `UsageError`."""
    found: dict[str, list[int] | None] = {}
    for word in words:
        topic, colon, listed = word.partition(":")
        texts = listed.split(",") if colon else []
        if not topic:
            refuse(f"expected TOPIC or TOPIC:PARTITION,PARTITION, not {word!r}")
        read = [whole_number(text, MOST_INT32) for text in texts]
        numbers = [number for number in read if number is not None]
        if len(numbers) < len(texts):
            refuse(f"{word!r}: expected partition numbers after the colon, as in {topic}:0,2")
        known = found.setdefault(topic, [])
        if not colon or known is None:
            found[topic] = None  # the whole topic includes its named partitions
        else:
            known.extend(n for n in dict.fromkeys(numbers) if n not in known)
    return found


def partitions_of(
    run: AdminRun, words: Iterable[str]
) -> tuple[list[TopicPartition], dict[str, KafkaError]]:
    """Return the sorted partitions that the arguments name, and errors by topic."""
    scope = parse_scope(words)
    whole = [topic for topic, numbers in scope.items() if numbers is None]
    described, failed = (
        run.each(lambda: run.admin.describe_topics(whole, run.left())) if whole else ({}, {})
    )
    found = {
        TopicPartition(topic, p.partition)
        for topic, description in described.items()
        for p in description.partitions
    }
    for topic, numbers in scope.items():
        found |= {TopicPartition(topic, n) for n in numbers or ()}
    return sorted(found), failed
