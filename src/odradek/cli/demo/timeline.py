"""Collect the clients' events from all processes, or from a simulation.

In: the JSON lines that every client writes into the events folder, or the traces of simulated
clients, and the times at which the cluster stopped and was available again. Out: one timeline, and
the durations of outage and recovery.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.simulation import World
    from odradek.testing.brokers.broker_set import TimelineEvent


@dataclass(frozen=True, slots=True)
class Noticed:
    """Event of a client; `time` is in seconds, on the wall clock or in virtual time."""

    time: float
    pid: int | None
    """Id of the client's process; None in a simulation."""
    client: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Durations in seconds; None for an event that didn't happen."""

    outage: float | None
    """From the last broker's exit until the first broker accepts connections again."""
    producer: float | None
    """From the end of the outage to the first acknowledged record (0 if it came before)."""
    source: float | None
    """From the end of the outage to the first record that Spark or the consumer read."""


class EventReader:
    """Reads new events in the events folder at each call."""

    def __init__(self, folder: Path, *, clearing: bool = False) -> None:
        """Take the folder; `clearing`: delete files of ended processes after reading them."""
        self._folder = folder
        self._clearing = clearing
        self._read: dict[str, int] = {}
        self.events: list[Noticed] = []

    def poll(self) -> list[Noticed]:
        """Return the events since the last call, by time."""
        fresh: list[Noticed] = []
        for entry in self._entries():
            done = self._read.get(entry.name, 0)
            gone = self._clearing and _writer_is_gone(entry.name)  # checked before the file is read
            if entry.stat().st_size != done:
                with Path(entry.path).open("rb") as file:
                    file.seek(done)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]  # a client may be writing the last line
                self._read[entry.name] = done + len(whole)
                fresh += [_event(line) for line in whole.splitlines()]
            if gone:
                Path(entry.path).unlink(missing_ok=True)
                self._read.pop(entry.name, None)
        fresh.sort(key=lambda e: e.time)
        self.events += fresh
        return fresh

    def forget(self) -> None:
        """Delete the files of all events."""
        for entry in self._entries():
            with suppress(OSError):
                Path(entry.path).unlink()
        self._read.clear()

    def _entries(self) -> list[os.DirEntry[str]]:
        if not self._folder.is_dir():
            return []
        with os.scandir(self._folder) as entries:
            return sorted((e for e in entries if e.name.endswith(".jsonl")), key=lambda e: e.name)


def _writer_is_gone(name: str) -> bool:
    """Return whether the process of `events-HOST-PID.jsonl` on this machine has ended."""
    number = name.removesuffix(".jsonl").rpartition("-")[2]
    if not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process belongs to another user
        return False
    return False


class TraceReader:
    """Reads new events in the traces of simulated clients at each call."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[str, int] = {}
        self.events: list[Noticed] = []

    def poll(self) -> list[Noticed]:
        """Return the events since the last call, by time."""
        fresh: list[Noticed] = []
        for name, host in self._world.hosts.items():
            events = host.trace.events
            fresh += [
                Noticed(event.at, None, name, event.kind, dict(event.fields))
                for event in events[self._read.get(name, 0) :]
            ]
            self._read[name] = len(events)
        fresh.sort(key=lambda e: e.time)
        self.events += fresh
        return fresh


def _event(line: bytes) -> Noticed:
    item = json.loads(line)
    fixed = {"time", "pid", "client", "kind"}
    rest = {k: v for k, v in item.items() if k not in fixed}
    return Noticed(item["time"], item["pid"], item["client"], item["kind"], rest)


def outage_of(timeline: Sequence[TimelineEvent]) -> tuple[float | None, float | None]:
    """Return when the last broker ended and when the first one accepted connections after that."""
    exited = max((e.wall for e in timeline if e.name == "broker_exited"), default=None)
    listening = [e.wall for e in timeline if e.name == "broker_listening"]
    back = min((at for at in listening if exited is not None and at > exited), default=None)
    return exited, back


def recovery(
    events: Iterable[Noticed], exited: float | None, back: float | None, producer: str
) -> Recovery:
    """Return the times of outage and recovery.

    `exited` and `back`: times at which the last broker ended and the first one accepted connections
    again, as measured by the cluster and not by a client. `producer` is the name (client.id) of the
    client that writes; all others are the source.
    """
    if exited is None or back is None:
        return Recovery(None, None, None)
    after = sorted((e for e in events if e.time >= exited), key=lambda e: e.time)
    acked = _first(e.time for e in after if e.kind == "first_ack" and e.client == producer)
    read = _first(e.time for e in after if e.kind == "first_record" and e.client != producer)
    return Recovery(
        back - exited,
        None if acked is None else max(0.0, acked - back),
        None if read is None else max(0.0, read - back),
    )


def _first(times: Iterable[float]) -> float | None:
    return next(iter(times), None)


WORTH_TELLING = {
    "disconnected": "lost the connection to",
    "rebootstrap": "reconnects through bootstrap.servers:",
    "rebootstrapped": "found the cluster again through",
    "first_ack": "gets acknowledgements, partition",
    "first_record": "reads records, partition",
    "foreign_cluster": "rejected a different cluster at",
    "expired": "timed out:",
}


REPEATED_S = 5.0
"""Seconds after a report of a first acknowledgement or record in which no other is reported.

While the cluster starts, each short interruption has a first acknowledgement or record after it.
"""


class Teller:
    """Converts events to lines of the timeline."""

    def __init__(self) -> None:
        self._told: dict[tuple[int | None, str, str], float] = {}

    def lines(self, events: Iterable[Noticed]) -> Iterator[tuple[float, str]]:
        """Yield lines for the notable events, with their times."""
        for event in events:
            line = self.tell(event)
            if line is not None:
                yield event.time, line

    def tell(self, event: Noticed) -> str | None:
        """Return the line for an event, or None for an unimportant one."""
        words = WORTH_TELLING.get(event.kind)
        if words is None or (event.kind == "disconnected" and not event.fields.get("failure")):
            return None
        if event.kind.startswith("first_"):
            who = (event.pid, event.client, event.kind)
            if event.time - self._told.get(who, -REPEATED_S) < REPEATED_S:
                return None
            self._told[who] = event.time
        f = event.fields
        detail = f.get("why") or f.get("address") or f.get("what") or f.get("partition", "")
        name = event.client if event.pid is None else f"{event.client} (pid {event.pid})"
        return f"{name} {words} {detail}"
