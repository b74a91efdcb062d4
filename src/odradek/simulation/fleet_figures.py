"""What brokers saw of a fleet, in figures, and the goals that they are held to.

In: what `fleet.run` collected, or a bare policy. Out: plain dictionaries, as `--json` prints them.
A small fleet's dials come in bursts by chance alone, so `by_chance` says how large the peak of as
many dials at wholly random times would be; nothing can be asked for below that.
Must not: know clients.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from odradek.common.backoff import ExponentialBackoff
from odradek.simulation.fleet import AFTER, BEFORE, Seen
from odradek.simulation.virtual_time import derived_rng

BIN = 0.01
CAP = 20.0
"""Seconds after which every backoff has reached its maximum."""
TRIES = 4
"""KIP-580: in the first second, instead of ten."""
PEAK = 2.0
"""Dials in the fullest 10 ms over their mean, at the cap."""
CHANCE = 1.25
"""Or so much above what chance alone does to a small fleet."""
STORM = 2.0
"""Dials and metadata requests of a client after the return: one to learn, one for its leader."""


def figures(seen: Seen) -> dict[str, Any]:
    """Everything that is printed of one fleet."""
    outage, clients = seen.outage, seen.clients
    since = min(CAP, outage / 2)
    times = [at for at, _ in seen.dials]
    capped = [t for t in times if since <= t < outage]
    after = [t for t in times if t >= outage]
    asked = [t for t, _ in seen.metadata if t >= outage]
    mean = len(capped) * BIN / (outage - since)
    back = sorted(seen.back)
    found: dict[str, Any] = {
        "policy": seen.strategy,
        "clients": clients,
        "brokers": seen.brokers,
        "outage_s": outage,
        "before": _phase(seen, -BEFORE, 0.0),
        "during": _phase(seen, 0.0, outage),
        "after": _phase(seen, outage, outage + AFTER),
        "first_second": {
            "tries_mean": round(sum(seen.first_second) / clients, 3),
            "tries_max": max(seen.first_second),
        },
        "cap": {
            "from_s": since,
            "dials_per_client_and_s": round(len(capped) / clients / (outage - since), 3),
            "dials_per_10ms": round(mean, 4),
            "peak_over_mean": round(peak_over_mean(capped, since, outage), 3),
            "by_chance": round(by_chance(mean, round((outage - since) / BIN)), 3),
        },
        "return": {
            "dials_per_client": round(len(after) / clients, 3),
            "metadata_per_client": round(len(asked) / clients, 3),
            "dials_in_fullest_10ms": _fullest(after, BIN),
            "metadata_in_fullest_10ms": _fullest(asked, BIN),
            "back": len(back),
            "back_p50_s": round(back[len(back) // 2], 3) if back else None,
            "back_max_s": round(back[-1], 3) if back else None,
        },
    }
    found["missed"] = missed(found)
    return found


def _phase(seen: Seen, start: float, end: float) -> list[dict[str, Any]]:
    """Dials and metadata requests per second at each broker."""
    return [
        {
            "broker": broker,
            "dials_per_s": _rate(seen.dials, broker, start, end),
            "metadata_per_s": _rate(seen.metadata, broker, start, end),
        }
        for broker in range(1, seen.brokers + 1)
    ]


def _rate(
    arrived: Sequence[tuple[float, int]], broker: int, start: float, end: float
) -> dict[str, float]:
    times = [at for at, where in arrived if where == broker and start <= at < end]
    return {"mean": round(len(times) / (end - start), 2), "max": _fullest(times, 1.0, start)}


def _fullest(times: Sequence[float], width: float, start: float = 0.0) -> int:
    return max(Counter(int((t - start) / width) for t in times).values(), default=0)


def missed(found: dict[str, Any]) -> list[str]:
    """Which goals a fleet misses, in words."""
    cap, back, says = found["cap"], found["return"], []
    tries = found["first_second"]["tries_max"]
    if tries > TRIES:
        says.append(f"{tries} tries in the first second, goal {TRIES}")
    some = cap["by_chance"] + 2.0 / max(cap["dials_per_10ms"], 1e-3)  # two dials are chance
    allowed = max(PEAK, CHANCE * cap["by_chance"], some)
    if cap["peak_over_mean"] > allowed:
        says.append(f"peak over mean {cap['peak_over_mean']} at the cap, allowed {allowed:.2f}")
    if back["dials_per_client"] > STORM or back["metadata_per_client"] > STORM:
        says.append(
            f"{back['dials_per_client']} dials and {back['metadata_per_client']} metadata requests "
            f"of a client after the return, goal {STORM:g}"
        )
    if back["back"] < found["clients"]:
        says.append(f"{found['clients'] - back['back']} clients didn't come back")
    return says


def peak_over_mean(times: Sequence[float], start: float, end: float) -> float:
    """The fullest bin of 10 ms over the mean one; 0 with nothing in it."""
    bins = max(1, round((end - start) / BIN))
    counts = Counter(int((t - start) / BIN) for t in times if start <= t < end)
    total = sum(counts.values())
    return max(counts.values()) * bins / total if total else 0.0


def by_chance(mean: float, bins: int) -> float:
    """Peak over mean that as many dials at wholly random times would most likely show.

    A small fleet's peak can't be below it, whatever the clients do.
    """
    if mean <= 0 or bins < 1:
        return 0.0
    count, tail = 0, 1.0
    term = math.exp(-mean)
    while bins * tail > 0.7:  # median of the fullest bin
        tail -= term
        count += 1
        term *= mean / count
    return (count - 1) / mean


def bare(policy: ExponentialBackoff, clients: int, seconds: float, seed: int) -> list[float]:
    """Dials of clients that do nothing else: a failure at each, then the policy's wait."""
    rng = derived_rng(seed, "bare")
    times = []
    for _ in range(clients):
        now, failures = 0.0, 0
        while now < seconds:
            times.append(now)
            now += policy.delay(failures, rng)
            failures += 1
    return times
