"""Suggest similar names for unknown topics and groups.

In: the errors of a command, by item. Out: the same errors, with similar names added for unknown
topics and groups. Must not: fail or take long; without a list of names there is no suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from odradek.api.admin import Admin
from odradek.cli.frame.completion import ids_of_groups
from odradek.clients.missing_topics import did_you_mean, similar_names
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import GroupIdNotFoundError, UnknownTopicOrPartitionError

SUGGESTED = "(did you mean "
LIST_TIMEOUT_S = 2.0
"""Timeout in seconds for a list of names."""
NAME_LISTS: Mapping[type[KafkaError], Callable[[Admin, float], Iterable[str]]] = {
    UnknownTopicOrPartitionError: lambda admin, left: admin.list_topics(left),
    GroupIdNotFoundError: ids_of_groups,
}
"""Functions that list the existing names, by the error for an unknown name."""


class AdminCommand(Protocol):
    """Part of a command's run that is used to list names."""

    @property
    def admin(self) -> Admin: ...
    def left(self) -> float: ...


def with_name_suggestions(
    run: AdminCommand, failed: Mapping[Any, KafkaError]
) -> dict[Any, KafkaError]:
    """Return the errors; add similar names to errors about unknown names."""
    told = dict(failed)
    for kind, names in NAME_LISTS.items():
        absent = {
            i: e
            for i, e in failed.items()
            # The client already adds names for topics that it describes.
            if isinstance(e, kind) and _about(i, kind) and SUGGESTED not in str(e)
        }
        if not absent:
            continue
        try:
            there = list(names(run.admin, min(LIST_TIMEOUT_S, run.left())))
        except KafkaError:
            continue
        for item, error in absent.items():
            name = _name(item)
            if name not in there:  # if the topic exists, only its partition is missing
                told[item] = _with(error, did_you_mean(similar_names(name, there)))
    return told


def _about(item: Any, kind: type[KafkaError]) -> bool:
    """Return whether the item can have this kind of error; a partition isn't a group."""
    return kind is not GroupIdNotFoundError or isinstance(item, str)


def _name(item: Any) -> str:
    """Return the topic or group of an item, which may be a name, a partition or a resource."""
    return str(getattr(item, "topic", None) or getattr(item, "name", None) or item)


def _with(error: KafkaError, hint: str) -> KafkaError:
    if not hint:
        return error
    kind, (said, *more) = type(error), error.args or (type(error).__name__,)
    made = kind.__new__(kind, f"{str(said).removesuffix('.')}{hint}", *more)
    vars(made).update(vars(error))
    return made
