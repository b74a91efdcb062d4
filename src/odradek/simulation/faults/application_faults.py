"""Define the faults of applications: leave, die, stop polling, hang, resubscribe.

In: arguments of a schedule. Out: `APPLICATION`, a table that `fault_table` adds to its own. The
faults affect a group's members and their topics, and no other clients. Must not know how a member
reacts.
"""

from __future__ import annotations

from typing import Any

from odradek.simulation.faults.fault_arguments import (
    CLIENT,
    Act,
    Argument,
    FaultKind,
    Stage,
    is_number,
)

LENGTHS = (1.0, 3.0, 9.0, 14.0)
"""Durations of faults in seconds, some shorter and some longer than a session timeout."""

_LONG = Argument(
    "seconds, 0 or more",
    lambda v, _: is_number(v) and 0 <= v < 1e6,
    lambda rng, _: round(rng.choice(LENGTHS) * rng.uniform(0.5, 1.5), 3),
)
_BACK = Argument(_LONG.words, _LONG.allowed, _LONG.draw, optional=True)
WHO = {"client": CLIENT}


def _asks(name: str) -> Act:
    def act(stage: Stage, arguments: dict[str, Any]) -> None:
        member = stage.members.get(arguments.pop("client"))
        if member is not None:
            getattr(member, name)(**arguments)

    return act


APPLICATION: dict[str, FaultKind] = {
    "leave": FaultKind(
        "let a member leave cleanly; another member replaces it after `back` seconds",
        {**WHO, "back": _BACK}, _asks("leave"),
    ),
    "die": FaultKind(
        "kill a member; it is restarted after `back` seconds",
        {**WHO, "back": _BACK}, _asks("die"), 4,
    ),
    "stop_polling": FaultKind(
        "keep a member's application from polling for `seconds`",
        {**WHO, "seconds": _LONG}, _asks("stop_polling"), 3,
    ),
    "freeze": FaultKind(
        "stop a member's process as SIGSTOP does, and resume it",
        {**WHO, "seconds": _LONG}, _asks("freeze"), 4,
    ),
    "rejoin": FaultKind("let a member ask for a rebalance", WHO, _asks("rejoin"), 1),
    "subscribe_anew": FaultKind(
        "let a member unsubscribe and subscribe", WHO, _asks("subscribe_anew")
    ),
    "quiet": FaultKind(
        "write no records to the group's topics for `seconds`",
        {"seconds": _LONG}, lambda stage, a: stage.be_quiet(**a), 0,
    ),
}  # fmt: skip
