"""Parse partitions on the command line: `flights` is a whole topic, `flights:0,2` are two.

In: words. Out: partitions. Must not: leave out one that doesn't exist; a request for it says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import MOST_INT32, whole_number
from odradek.cli.frame.commands import AdminRun
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition


def parse_scope(words: Iterable[str]) -> dict[str, list[int] | None]:
    """Partitions' numbers by topic, None for all; ends as a wrong use does."""
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
            found[topic] = None  # all, whatever else is named of it
        else:
            known.extend(n for n in dict.fromkeys(numbers) if n not in known)
    return found


def partitions_of(
    run: AdminRun, words: Iterable[str]
) -> tuple[list[TopicPartition], dict[str, KafkaError]]:
    """Return the partitions that words name, sorted, and the topics with errors."""
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
