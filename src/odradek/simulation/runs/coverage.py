"""Report the faults and effects that a search should have caused and didn't.

In: the number of schedules of a family, counts of drawn faults and effects. Out: the missing ones.
A search proves nothing about a fault that it never injects. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.simulation.runs.random_schedules import Family

LONG = 1_000
"""Number of schedules from which on every expected fault and effect must occur."""
BROKERS = ("crash", "bounce", "stop", "pause", "blackhole", "half_open", "move", "stale_metadata")
"""Faults of brokers that schedules of the plain family draw."""
LOGS = ("answer_error", "append_but_refuse", "late_packets", "late_requests", "max_message_bytes")
LOST = ("answer lost with its connection",)
RECREATED = ("recreate_topic", "topic deleted")
TRANSACTIONS = (
    "transaction committed",
    "transaction aborted",
    "transaction without a known outcome",
)
GROUPS = (
    *("leave", "die", "freeze", "rejoin", "stop_polling", "subscribe_anew", "grow_topic"),
    *("partition assigned in a rebalance", "partition revoked in a rebalance, or lost"),
    *("process died", "member refused as fenced or unknown", "member told to rejoin"),
    *("frozen beyond its session", "coordinator moved and loaded its state"),
    *("authenticated again", "topic created again with offsets of the deleted one pending"),
)
EXPECTED: dict[Family | None, tuple[str, ...]] = {
    None: (*BROKERS, *LOGS, *LOST, *RECREATED, *TRANSACTIONS, "slow_api", "zombie_leader"),
    "plain": (*BROKERS, *LOST, "authenticated again"),
    "hostile": (*LOGS, *LOST, *RECREATED, "unclean_election", "delete_records", "error answered"),
    "slow": ("slow_api", "answer delayed by slow_api"),
    "transactions": (*LOGS, *TRANSACTIONS, "EndTxn arrived late"),
    "misled": ("swap", "lead_astray", "lead_abroad"),
    "shortages": ("exhaust", "quota", "trickle"),
    "operators": (
        *("answer_error", "slow_api", "zombie_leader", "move_leader", *BROKERS, *LOST),
        *("coordinator moved and loaded its state", "error answered after it was done"),
    ),
    "groups": (*GROUPS, *RECREATED, *LOST),
    "read-process-write": (
        *(one for one in GROUPS if one not in ("rejoin", "subscribe_anew")),
        *TRANSACTIONS,
        *("producer refused as fenced", "EndTxn arrived late", "zombie_leader"),
    ),
}
"""Faults and effects that a long search of a family causes; None: the seed chooses the family."""


def missing(
    family: Family | None, schedules: float, drawn: Mapping[str, int], effects: Mapping[str, int]
) -> list[str]:
    """Return the faults and effects that a long search never caused; nothing for a short search."""
    if schedules < LONG:
        return []
    return [what for what in EXPECTED[family] if not drawn.get(what) and not effects.get(what)]
