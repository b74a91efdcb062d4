"""Summarize many runs of a recovery, and compare them with R-RB-7's goal.

In: runs of one fault with one number of brokers. Out: a plain dictionary, as `--json` prints it.
Must not leave out runs that never recovered; they are the end of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.simulation.measurements.recovery import RecoveryFault, RecoveryRun

SIZES = (1, 2, 3, 5, 10, 30, 100, 300, 1000)
"""Numbers of brokers for which the goal is defined."""
ACK_WITHIN = 1.0
"""Maximum p99 of the seconds from the contact with a broker to the first acknowledgement."""
MAX_PER_SECOND = 6


@dataclass(frozen=True, slots=True)
class Goal:
    """Maximum p99 of the seconds until the contact, or of the connection attempts in an outage."""

    contact: float | None = None
    dials: int | None = None


_REFUSED, _SILENT = Goal(contact=2.0), Goal(contact=5.0)
GOALS = {
    RecoveryFault.REFUSED: _REFUSED,
    RecoveryFault.ACCEPT_RESET: _REFUSED,
    RecoveryFault.READY_THEN_CLOSE: _REFUSED,
    RecoveryFault.IDLE_THEN_REPLACED: _REFUSED,
    RecoveryFault.DNS_MOVED: _REFUSED,
    RecoveryFault.BLACKHOLED: _SILENT,
    RecoveryFault.SLOW_HANDSHAKE: _SILENT,
    RecoveryFault.SILENT: Goal(contact=12.0),
    RecoveryFault.OUTAGE_REFUSED: Goal(dials=330),
    RecoveryFault.OUTAGE_BLACKHOLED: Goal(dials=150),
}


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Return a percentile by the nearest-rank method; None counts as infinity."""
    ordered = sorted(math.inf if v is None else v for v in values)
    found = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
    return None if found == math.inf else round(found, 4)


def figures(fault: RecoveryFault, runs: Sequence[RecoveryRun]) -> dict[str, Any]:
    """Return the distribution of all runs' results, and the missed goals."""
    contacts = [r.contact for r in runs]
    acks = [r.ack for r in runs]
    after = [
        None if r.ack is None or r.contact is None else max(0.0, r.ack - r.contact) for r in runs
    ]
    found = {
        "runs": len(runs),
        "never": sum(r.ack is None for r in runs),
        "contact": _spread(contacts),
        "ack": _spread(acks),
        "ack_after_contact": _spread(after),
        "dials": {**_spread([r.dials for r in runs]), "max_per_s": max(r.max_per_s for r in runs)},
        "metadata_requests": _spread([r.metadata_requests for r in runs]),
        "rebootstraps": _spread([r.rebootstraps for r in runs]),
    }
    found["missed"] = missed(fault, found)
    return found


def _spread(values: Sequence[float | None]) -> dict[str, float | None]:
    return {
        "p50": percentile(values, 0.5),
        "p99": percentile(values, 0.99),
        "max": percentile(values, 1.0),
    }


def missed(fault: RecoveryFault, found: dict[str, Any]) -> list[str]:
    """Return the missed goals of a distribution as text."""
    goal, says = GOALS[fault], []
    contact, after = found["contact"]["p99"], found["ack_after_contact"]["p99"]
    if goal.contact is not None and (contact is None or contact > goal.contact):
        says.append(f"contact p99 {_seconds(contact)}, goal {goal.contact:g} s")
    if goal.contact is not None and (after is None or after > ACK_WITHIN):
        says.append(f"first acknowledgement {_seconds(after)} after it, goal {ACK_WITHIN:g} s")
    if found["dials"]["max_per_s"] > MAX_PER_SECOND:
        says.append(
            f"{found['dials']['max_per_s']} connection attempts in a second, goal {MAX_PER_SECOND}"
        )
    if goal.dials is not None and found["dials"]["max"] > goal.dials:
        says.append(f"{found['dials']['max']} connection attempts in the outage, goal {goal.dials}")
    return says


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
