"""Collect, normalize and compare event traces of clients.

In: the events of an `EventLog`. Out: text lines. Two runs with the same seed must have equal lines
with equal times, in byte mode as in message mode. With real sockets, times, ports and the order
between connections differ, so `by_connection` compares one client's connections one by one, with
addresses replaced by roles. Must not suppress events.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from odradek.common.events import Event, EventLog

T = TypeVar("T")

TIMELY = frozenset({"seconds", "backoff", "connection", "ip", "at"})
"""Fields whose values may differ between a real and a simulated network."""


class Trace:
    """The events of one client, in order."""

    def __init__(self, client: str = "client") -> None:
        self.client = client
        self.events: list[Event] = []

    def follow(self, events: EventLog) -> None:
        """Collect the events of this log that occur from now on."""
        events.listen(self.events.append)

    def of_kind(self, *kinds: str) -> list[Event]:
        """Return the collected events of the given kinds."""
        return [e for e in self.events if e.kind in kinds]

    def lines(self) -> list[str]:
        """Return each event with its time as text, for comparing two runs of one simulation."""
        return [f"{e.at!r} {self.client} {e}" for e in self.events]

    def by_connection(
        self, roles: Mapping[str, str], *, without: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """Return each connection's events without times, ids and ports; the rest under "client".

        `roles` names addresses ("10.0.0.2:9092" → "broker 1"); the second connection to an address
        becomes "broker 1 #2". Kinds in `without` are left out.
        """
        left_out = set(without)
        dialled: dict[str, int] = {}
        found: dict[str, list[str]] = {}
        for event in self.events:
            if event.kind in left_out:
                continue
            address = event.fields.get("address")
            if address is None:
                key = "client"
            else:
                role = roles.get(str(address), str(address))
                dialled[role] = dialled.get(role, 0) + (event.kind == "dial")
                key = f"{role} #{max(1, dialled[role])}"
            fields = {k: v for k, v in event.fields.items() if k not in TIMELY and v is not None}
            words = " ".join(f"{k}={_plain(str(v), roles)}" for k, v in fields.items())
            found.setdefault(key, []).append(f"{event.kind} {words}".rstrip())
        return found


def _plain(text: str, roles: Mapping[str, str]) -> str:
    """Return a text without values that differ between two runs; addresses become roles."""
    for address, role in sorted(roles.items(), key=lambda item: -len(item[0])):
        text = text.replace(address, role)
    return re.sub(r"\d+\.\d+ s", "… s", text)


def difference(
    left: Mapping[str, list[str]] | list[str],
    right: Mapping[str, list[str]] | list[str],
    names: tuple[str, str] = ("left", "right"),
) -> str:
    """Return the differences between two traces as text; empty if they are equal."""
    if left == right:
        return ""
    return "\n".join(difflib.unified_diff(_flat(left), _flat(right), *names, lineterm="", n=2))


def _flat(trace: Mapping[str, list[str]] | list[str]) -> list[str]:
    if isinstance(trace, list):
        return trace
    return [line for key in sorted(trace) for line in (f"[{key}]", *trace[key])]


def assert_same(
    left: Mapping[str, list[str]] | list[str],
    right: Mapping[str, list[str]] | list[str],
    names: tuple[str, str] = ("left", "right"),
) -> None:
    """Raise an error with the differences unless the traces are equal."""
    text = difference(left, right, names)
    if text:
        raise AssertionError(f"the traces differ\n{text}")


def run_twice(scenario: Callable[[], list[str]]) -> list[str]:
    """Run a scenario twice; raise an error unless both traces have equal lines and times."""
    first, second = scenario(), scenario()
    assert_same(first, second, ("first run", "second run"))
    return first
