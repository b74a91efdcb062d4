"""Build the `odradek` commands that messages suggest, with the servers they need.

In: the words of a command, the bootstrap servers that the client was given. Out: text that runs
when it is pasted into a shell, except that a secured cluster needs its credentials as well.
Must not: know what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.common.printable import shell_quoted

Servers = Iterable[object]
"""Bootstrap servers as they were given: addresses or texts."""


def command(words: str, servers: Servers) -> str:
    """Return a command of `odradek` with its servers."""
    where = shell_quoted(",".join(map(str, servers)))
    return f"odradek {words} --bootstrap-server {where}"


def cure(topic: str, servers: Servers) -> str:
    """Return the command that creates a topic."""
    return f"Create it with: {command(f'topics create {shell_quoted(topic)}', servers)}"


def looks_at(servers: Servers) -> str:
    """Return the command that checks each step from this machine to a cluster."""
    return f"Check each step from this machine with: {command('doctor', servers)}"


def lists_members(group_id: str, servers: Servers) -> str:
    """Return the command that lists the members of a group, with their instance ids."""
    found = command(f"groups members {shell_quoted(group_id)}", servers)
    return f"List the members with: {found}"
