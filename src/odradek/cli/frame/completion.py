"""Names of the cluster's topics and groups, for the shell that completes a word.

In: what was typed so far. Out: names, or none where the cluster can't be asked within a moment.
Must not: say anything, or offer a name that a shell would take for more than a word.
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
"""Seconds that a shell waits."""
MAX_NAMES = 500
"""Names that are offered."""
_HARMLESS = re.compile(r"[\w.:@+%,/-]+", re.ASCII)
"""A group may be called `$(rm -r .)`, and a shell would put that into the line as it is."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Topics whose names begin so."""
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
