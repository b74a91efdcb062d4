"""Lists that are put together of what each broker has, where one of them doesn't answer.

In: a call of an admin client. Out: what is known, and which brokers told nothing. Must not: wait
any longer than the call does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.common.errors import KafkaError

T = TypeVar("T")


def told_by_brokers(
    ask: Callable[[], list[T]], key: Callable[[T], str]
) -> tuple[list[T], dict[int, KafkaError]]:
    """What brokers have told in time, each thing once, by its key; and by broker why the others
    haven't. Raises the error where none has.
    """
    try:
        return ask(), {}
    except KafkaError as error:
        if not error.results:
            raise
        parts: list[Any] = list(error.results.values())
        found = {key(one): one for those in parts for one in those}
        return [found[name] for name in sorted(found)], dict(error.errors)
