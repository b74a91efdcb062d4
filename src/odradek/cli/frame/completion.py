"""Shell completion of topic names and group ids.

In: the incomplete word. Out: names, or none if the cluster doesn't answer quickly. Must not: print
messages, or return a name with characters that are special in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import typer

from odradek.api.admin import Admin
from odradek.cli.console.properties import UsageError
from odradek.cli.frame.merged_lists import told_by_brokers
from odradek.cli.frame.settings import Flags, settings
from odradek.common.errors import KafkaError

LIST_TIMEOUT_S = 1.5
"""Timeout in seconds for the list of names."""
MAX_NAMES = 500
"""Maximum number of suggested names."""
_HARMLESS = re.compile(r"[\w.:@+%,/-]+", re.ASCII)
"""Matches safe names: a shell inserts a group id such as `$(rm -r .)` without quotes."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return topics whose names begin with a text."""
    return _names(context, incomplete, lambda admin: admin.list_topics(LIST_TIMEOUT_S))


def group_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return groups whose ids begin with a text."""
    return _names(context, incomplete, lambda admin: ids_of_groups(admin, LIST_TIMEOUT_S))


def ids_of_groups(admin: Admin, timeout: float) -> list[str]:
    """Return the ids of the groups that brokers report before the timeout."""
    found, _ = told_by_brokers(lambda: admin.list_groups(timeout), lambda g: g.group_id)
    return [g.group_id for g in found]


def _names(
    context: typer.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]
) -> list[str]:
    typed = context.params
    flags = Flags(
        typed.get("bootstrap_server"),
        typed.get("command_config"),
        tuple(typed.get("command_property") or ()),
        typed.get("profile"),
    )
    try:
        with Admin(settings(flags).given) as admin:
            found = sorted(ask(admin))
    except (KafkaError, UsageError, OSError):
        return []
    fit = [name for name in found if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]
    return fit[:MAX_NAMES]
