"""Define the rows: the brokers' faults, the measured values, and when two libraries are tied.

In: a `Cell`. Out: values (None means "never") and notes for the JSON. A row is only defined here;
every library gets the same script with the same times. Lower values are always better.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.scorecard.brokers import Answer, Cluster, Seen
from benchmarks.scorecard.cell import TOPIC, Cell

NEVER_AFTER = 60.0
OVERLOAD_S = 40.0
"""Seconds during which connection attempts are counted in rows B and K."""
OUTAGE = 120.0
EMPTY = 10.0
RETURN_LIMIT = 30.0
"""Seconds within which a client must recover after the brokers, to be ranked by its attempts."""
CALLERS, REFRESHES, MANY_REFRESHES = 1000, 100, 1000
METADATA_DELAY = 0.005
CALL_TIMEOUT = 5.0
SETTLED = 0.5
DIALS_ENOUGH = 60
"""Attempts in 40 s that are enough: KIP-144's cap of one per second, and 20 before the cap."""
DIALS_A_MINUTE_ENOUGH = 66
"""Number of attempts per minute of a long outage, with the same cap: 330 in five minutes."""
BACK_ENOUGH = 1.2
"""Seconds to recover without a disadvantage: `reconnect.backoff.max.ms` and `retry.backoff.max.ms`
are 1 s ± 20 % by default in Java. After a long outage a client with this backoff recovers within
this time; a client that recovers faster was lucky or retries too often."""

Figures = dict[str, float | None]
Notes = dict[str, Any]
Script = Callable[[Cell], Awaitable[tuple[Figures, Notes]]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value of a row, and when two libraries' values count as tied."""

    name: str
    title: str
    unit: str
    slack: float = 0.0
    """A value is tied with the best one if it exceeds (1 + `share`) × best by at most this."""
    share: float = 0.0
    """Share of the best value by which a tied value may be higher, in addition to `slack`."""
    enough: float | None = None
    """A value up to this one counts as tied with the best; None without such a value."""
    ranked: bool = True
    needs: str | None = None
    """Name of another value that must not be "never"; otherwise this value doesn't count."""
    words: tuple[str, str, str] | None = None
    """Texts for the value 0, for more than 0, and for any value if the needed one is "never"."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the scorecard."""

    key: str
    title: str
    script: Script
    figures: tuple[Figure, ...]
    seconds: float
    """Maximum duration of a run in seconds, from which the schedule is computed."""
    rate: bool = False
    """Whether a rate is measured: then at most as many runs are parallel as there are cores."""


def _cluster(cell: Cell, brokers: int, *, partitions: int = 1) -> Cluster:
    cluster = cell.network.cluster("home", 1, brokers, TOPIC, partitions=partitions)
    cell.door.serve(cluster, 1)
    return cluster


def _serve_all(cell: Cell, cluster: Cluster) -> float:
    cluster.behave()
    for i, address in enumerate(cluster.addresses):
        address.serve(cluster, cluster.first_id + i)
    cell.door.serve(cluster, cluster.first_id)
    return cell.now()


async def replaced(cell: Cell, *, brokers: int, black_hole: bool) -> tuple[Figures, Notes]:
    """Replace all brokers; the bootstrap address then leads to the new brokers."""
    old = _cluster(cell, brokers)
    await cell.start("produce")
    await cell.established()
    new = cell.network.cluster("home", brokers + 1, brokers, TOPIC, epoch=1)
    for address in old.addresses:
        if black_hole:
            address.black_hole()
        else:
            address.refuse()
    cell.door.serve(new, new.first_id)
    gone = cell.now()
    taken = await cell.first_taken(gone, new.ids, NEVER_AFTER)
    return {"record": taken, "contact": cell.first_request(gone, new.ids)}, {}


async def overload(cell: Cell, *, ready: bool) -> tuple[Figures, Notes]:
    """Let all addresses reset connections, or close them after ApiVersions; then end that."""
    cluster = _cluster(cell, 3)
    await cell.start("idle")
    await cell.established()
    if ready:
        cluster.close_when_ready()
    for address in cell.all_addresses():
        if ready:
            address.serve(cluster, 1)
        else:
            address.reset()
    begin = cell.now()
    await asyncio.sleep(OVERLOAD_S)
    count = partial(cell.network.count, "dial")
    figures: Figures = {
        "dials": count(begin, begin + OVERLOAD_S),
        "first10": count(begin, begin + 10),
        "last10": count(begin + OVERLOAD_S - 10, begin + OVERLOAD_S),
    }
    healed = _serve_all(cell, cluster)
    figures["back"] = await cell.first_taken(healed, cluster.ids, RETURN_LIMIT)
    return figures, {}


async def rebootstrap_required(cell: Cell) -> tuple[Figures, Notes]:
    """Let the old brokers lead nothing and answer Metadata with REBOOTSTRAP_REQUIRED (129)."""
    old = _cluster(cell, 3)
    await cell.start("produce")
    await cell.established()
    new = cell.network.cluster("home", 4, 3, TOPIC, epoch=1)
    old.says(Answer.REBOOTSTRAP_REQUIRED)
    cell.door.serve(new, new.first_id)
    gone = cell.now()
    taken = await cell.first_taken(gone, new.ids, NEVER_AFTER)
    asked = sum(
        s.what == "Metadata" and s.at >= gone and s.broker in old.ids for s in cell.network.seen
    )
    return {"record": taken, "asked": asked}, {}


async def no_brokers(cell: Cell) -> tuple[Figures, Notes]:
    """Let brokers return metadata that lists no brokers and leaders; then end the fault."""
    cluster = _cluster(cell, 3)
    await cell.start("produce")
    await cell.established()
    cluster.says(Answer.NO_BROKERS)
    begin = cell.now()
    await asyncio.sleep(EMPTY)
    cluster.says(Answer.GOOD)
    healed = cell.now()
    taken = await cell.first_taken(healed, cluster.ids, NEVER_AFTER)
    return {"record": taken, "asked": cell.network.count("Metadata", begin, healed)}, {}


async def different_cluster(cell: Cell) -> tuple[Figures, Notes]:
    """Stop all brokers and let the bootstrap address lead to a different cluster."""
    home = _cluster(cell, 3)
    await cell.start("produce")
    await cell.established()
    for address in home.addresses:
        address.refuse()
    other = cell.network.cluster("foreign", 1, 3, TOPIC)
    cell.door.serve(other, 1)
    await asyncio.sleep(NEVER_AFTER)
    seen = [s for s in cell.network.seen if s.cluster == "foreign"]
    asked = sum(s.what == "Metadata" for s in seen)
    taken = sum(s.records for s in seen)
    return {"foreign": taken, "asked": asked or None}, {}


async def misrouted(cell: Cell) -> tuple[Figures, Notes]:
    """Move the leader, and start a broker of another cluster at the leader's old address.

    The other cluster's broker has the same id; all other brokers and the bootstrap address remain.
    """
    home = cell.network.cluster("home", 1, 3, TOPIC, looks=True)
    cell.door.serve(home, 2)
    await cell.start("produce")
    await cell.established()
    other = cell.network.cluster("foreign", 1, 3, TOPIC, looks=True)
    home.move(0).serve(other, 1)
    gone = cell.now()

    def back(seen: Seen) -> bool:
        return seen.what == "taken" and seen.cluster == "home" and seen.at >= gone

    await cell.comes(lambda: cell.network.first(gone, back) is not None, NEVER_AFTER)
    taken = sum(s.records for s in cell.network.seen if s.cluster == "foreign")
    told = sum(s.what == "told 129" for s in cell.network.seen)
    return {"record": cell.network.first(gone, back), "foreign": taken}, {"told": told}


async def outage(cell: Cell) -> tuple[Figures, Notes]:
    """Refuse connections at every address for two minutes; then end the fault."""
    cluster = _cluster(cell, 3)
    await cell.start("idle")
    await cell.established()
    for address in cell.all_addresses():
        address.refuse()
    begin, before = cell.now(), cell.connection_attempts()
    await asyncio.sleep(10.0)
    first10 = cell.connection_attempts() - before
    await asyncio.sleep(begin + OUTAGE - cell.now())
    dials = cell.connection_attempts() - before
    healed = _serve_all(cell, cluster)
    back = await cell.first_taken(healed, cluster.ids, NEVER_AFTER)
    await asyncio.sleep(max(0.0, 10.0 - (cell.now() - healed)))
    figures: Figures = {
        "back": back,
        "asked": cell.network.count("Metadata", begin, healed + 10.0),
        "dials_after": cell.network.count("dial", healed, healed + 10.0),
    }
    if cell.counts_dials:
        figures["dials"] = dials * 60.0 / OUTAGE
        figures["first10"] = first10
    return figures, {}


async def callers(cell: Cell) -> tuple[Figures, Notes]:
    """Let 1,000 callers request the partitions of distinct topics at the same time."""
    cluster = _cluster(cell, 3)
    await cell.start("callers", callers=CALLERS)
    await cell.waiting()
    cluster.delay(METADATA_DELAY)
    begin = cell.go()
    answered = await cell.comes(lambda: cell.event("done") is not None, 2 * NEVER_AFTER)
    done = cell.event("done") or {}
    figures: Figures = {
        "requests": cell.network.count("Metadata", begin) if answered else None,
        "seconds": done.get("seconds"),
    }
    return figures, {"answered": done.get("n")}


async def dead_call(cell: Cell) -> tuple[Figures, Notes]:
    """Make a call with a timeout of 5 s right after every broker has stopped."""
    _cluster(cell, 3)
    await cell.start("call", timeout=CALL_TIMEOUT)
    await cell.waiting()
    for address in cell.all_addresses():
        address.refuse()
    await asyncio.sleep(0.5)
    cell.go()
    await cell.comes(lambda: cell.event("returned") is not None, NEVER_AFTER)
    returned = cell.event("returned") or {}
    return {"seconds": returned.get("seconds")}, {"what": returned.get("what")}


async def connections(cell: Cell) -> tuple[Figures, Notes]:
    """Request metadata 100 times, with ten brokers and one topic of one partition."""
    _cluster(cell, 10)
    await cell.start("metadata", refreshes=REFRESHES)
    await cell.waiting()
    cell.go()
    await cell.until(lambda: cell.event("done") is not None, 2 * NEVER_AFTER, "all refreshes")
    await asyncio.sleep(SETTLED)
    done = cell.event("done") or {}
    return {"connections": cell.network.connections}, {"refreshes": done.get("n")}


async def shares(cell: Cell) -> tuple[Figures, Notes]:
    """Request metadata 1,000 times, with ten brokers that each lead a partition of the topic."""
    _cluster(cell, 10, partitions=10)
    await cell.start("metadata", refreshes=MANY_REFRESHES, partitions=10)
    await cell.waiting()
    begin = cell.go()
    await cell.until(lambda: cell.event("done") is not None, 4 * NEVER_AFTER, "all refreshes")
    asked = Counter(s.broker for s in cell.network.seen if s.what == "Metadata" and s.at >= begin)
    total = sum(asked.values())
    spread = max(asked.values()) * 10 / total if total else None
    done = cell.event("done") or {}
    return {"spread": spread, "requests": total}, {
        "refreshes": done.get("n"),
        "by_broker": {str(k): v for k, v in sorted(asked.items(), key=lambda kv: kv[0] or 0)},
        "seconds": round(cell.now() - begin, 1),
    }


_RECORD = Figure("record", "first record accepted by a new broker", "s", slack=0.25, share=0.25)
_CONTACT = Figure("contact", "first contact with a new broker", "s", ranked=False)
_BACK = Figure(
    "back", "first record accepted once they are back", "s", share=0.25, enough=BACK_ENOUGH
)
_BACK_UNRANKED = Figure("back", "first record accepted once they are back", "s", ranked=False)
_OVERLOAD_FIGURES = (
    Figure(
        "dials", "connection attempts in 40 s", "", share=0.2, enough=DIALS_ENOUGH, needs="back"
    ),
    Figure("first10", "of these in the first 10 s", "", ranked=False),
    Figure("last10", "in the last 10 s", "", ranked=False),
    _BACK_UNRANKED,
)


def _replaced(key: str, brokers: int, *, black_hole: bool, title: str) -> Row:
    script = partial(replaced, brokers=brokers, black_hole=black_hole)
    return Row(key, title, script, (_RECORD, _CONTACT), 10 + NEVER_AFTER)


_ALL = (
    _replaced("A", 1, black_hole=False, title="the only broker is replaced at the same address"),
    Row("B", "every address accepts, then resets", partial(overload, ready=False),
        _OVERLOAD_FIGURES,
        10 + OVERLOAD_S + RETURN_LIMIT, rate=True),
    Row("C", "Metadata answers error 129 (rebootstrap required)", rebootstrap_required,
        (_RECORD, Figure("asked", "Metadata requests to the old brokers", "", ranked=False)),
        10 + NEVER_AFTER),
    _replaced("D3", 3, black_hole=False, title="three known brokers replaced, connections refused"),
    _replaced("D10", 10, black_hole=False, title="ten known brokers replaced, connections refused"),
    _replaced("E3", 3, black_hole=True,
              title="three known brokers replaced, connection attempts unanswered"),
    _replaced("E10", 10, black_hole=True,
              title="ten known brokers replaced, connection attempts unanswered"),
    Row("F", "no brokers in Metadata for 10 s, then a good answer", no_brokers,
        (Figure("record", "first record accepted after that", "s", share=0.25, enough=BACK_ENOUGH),
         Figure("asked", "Metadata requests in the 10 s", "", ranked=False)),
        20 + NEVER_AFTER),
    Row("G", "the bootstrap address leads to the wrong cluster", different_cluster,
        (Figure("foreign", "accepted (records in 60 s) or refused", "", needs="asked",
                words=("refused", "accepted {}", "never asked")),
         Figure("asked", "Metadata requests to it", "", ranked=False)),
        10 + NEVER_AFTER),
    Row("N", "the leader moved, its address is another cluster's (KIP-1242)", misrouted,
        (Figure("record", "first record accepted by it at its new address", "s", slack=0.25,
                share=0.25),
         Figure("foreign", "records lost to the other cluster", "")),
        10 + NEVER_AFTER),
    Row("H", "total outage of two minutes, connections refused", outage,
        (_BACK,
         Figure("dials", "connection attempts per minute", "", share=0.2,
                enough=DIALS_A_MINUTE_ENOUGH, needs="back"),
         Figure("first10", "connection attempts in the first 10 s", "", ranked=False),
         Figure("asked", "Metadata requests until 10 s after", "", ranked=False),
         Figure("dials_after", "connection attempts in the 10 s after", "", ranked=False)),
        20 + OUTAGE + NEVER_AFTER),
    Row("I", "1,000 callers with stale metadata", callers,
        (Figure("requests", "Metadata requests", "", share=0.25, enough=CALLERS // 250),
         Figure("seconds", "until all callers have an answer", "s", ranked=False)),
        2 * NEVER_AFTER, rate=True),
    Row("J", "a call with a timeout of 5 s, everything dead", dead_call,
        (Figure("seconds", "until it returns", "s", enough=CALL_TIMEOUT + 0.25),),
        5 + NEVER_AFTER),
    Row("K", "every broker answers ApiVersions, then closes", partial(overload, ready=True),
        _OVERLOAD_FIGURES, 10 + OVERLOAD_S + RETURN_LIMIT, rate=True),
    Row("L", "connections after 100 refreshes, ten brokers, one topic", connections,
        (Figure("connections", "connections open", ""),), 60, rate=True),
    Row("M", "1,000 refreshes, ten brokers", shares,
        (Figure("spread", "busiest broker's share over the mean", "×", enough=1.2, share=0.05),
         Figure("requests", "Metadata requests", "", ranked=False)),
        4 * NEVER_AFTER, rate=True),
)  # fmt: skip
ROWS: dict[str, Row] = {row.key: row for row in _ALL}
