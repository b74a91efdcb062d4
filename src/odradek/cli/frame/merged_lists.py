"""Lists that are merged from all brokers' answers, even if some brokers don't answer.

In: a call of an admin client. Out: the merged list, and the errors of brokers that didn't answer.
Must not: wait longer than the call does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.common.errors import KafkaError

T = TypeVar("T")


def told_by_brokers(
    ask: Callable[[], list[T]], key: Callable[[T], str]
) -> tuple[list[T], dict[int, KafkaError]]:
    """Return the merged list without duplicates by key, and errors by broker.

    Raises the error if no broker answered.
    """
    try:
        return ask(), {}
    except KafkaError as error:
        if not error.results:
            raise
        parts: list[Any] = list(error.results.values())
        found = {key(one): one for those in parts for one in those}
        return [found[name] for name in sorted(found)], dict(error.errors)
