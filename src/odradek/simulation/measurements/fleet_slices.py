"""Divide many clients into slices for workers: in this process, in others, or on Spark.

In: cases, the number of clients, the size of a slice. Out: numbered slices (ranges of clients of
one case), each with its `Load`; the loads of all slices add up to the fleet's. A plan describes
itself completely, so that interrupted work is resumed only with the same plan and the same clients.
Must not know where slices run, or keep a client's state.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from odradek.simulation.measurements.fleet import Case, Load, simulate

ROOMS = ("common", "protocol", "record", "network", "metadata", "clients", "simulation")
"""Packages with the code that decides how a simulated client behaves."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of clients of one case, which one worker simulates."""

    number: int
    case: int
    first: int
    clients: int


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The cases and clients to simulate, and their division into slices."""

    cases: tuple[Case, ...]
    clients: int
    size: int
    """Number of clients in a slice."""

    def slices(self) -> list[Slice]:
        """Return the slices of all cases, in the order of the cases."""
        found: list[Slice] = []
        for case in range(len(self.cases)):
            for first in range(0, self.clients, self.size):
                count = min(self.size, self.clients - first)
                found.append(Slice(len(found), case, first, count))
        return found

    def run(self, part: Slice) -> Load:
        """Simulate the clients of one slice."""
        numbers = range(part.first, part.first + part.clients)
        return simulate(self.cases[part.case], numbers)

    def described(self) -> dict[str, Any]:
        """Return the values that must be equal before loads of two runs may be added up."""
        return {
            "cases": [
                {
                    "policy": case.policy,
                    "setting": case.setting,
                    "brokers": case.brokers,
                    "outage": case.outage,
                    "seed": case.seed,
                }
                for case in self.cases
            ],
            "clients": self.clients,
            "slice": self.size,
            "code": code_digest(),
        }


def sample(clients: int, size: int) -> range:
    """Return the numbers of some clients, evenly spread over all."""
    step = max(1, clients // max(1, size))
    return range(0, min(clients, step * size), step)


@cache
def code_digest() -> str:
    """Return a digest of the source code that determines a simulated client's behaviour."""
    found = hashlib.sha256()
    for room in ROOMS:
        _digest(files(f"odradek.{room}"), found)
    return found.hexdigest()[:16]


def _digest(folder: Traversable, into: Any) -> None:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            _digest(entry, into)
        elif entry.name.endswith(".py"):
            into.update(entry.name.encode() + b"\0" + entry.read_bytes())
