"""Compute figures of a fleet's load on brokers, and compare them with their goals.

In: the `Load` of a fleet, or a backoff policy alone. Out: plain dictionaries, as `--json` prints
them. The connection attempts of a small fleet have bursts by chance alone: `by_chance` is the peak
of the same number of attempts at random times, and no goal can be lower. Must not know clients.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from odradek.common.backoff import ExponentialBackoff
from odradek.simulation.measurements.fleet import AFTER, BEFORE, WINDOWS, Load
from odradek.simulation.world.virtual_time import derived_rng

BIN = 1 / WINDOWS
DIALS = ("accepted", "refused")
CAP = 20.0
"""Seconds after which every backoff has reached its maximum."""
TRIES = 4
"""Maximum number of a client's attempts in the first second (KIP-580)."""
PEAK = 2.0
"""Maximum ratio of attempts in the busiest 10 ms to the mean, with all backoffs at the maximum."""
CHANCE = 1.25
"""Allowed factor above the peak that a small fleet's random times cause by chance."""
STORM = 2.0
"""Maximum number of attempts, and of metadata requests, per client after the outage: one for
metadata, one to the partition's leader."""


def figures(load: Load) -> dict[str, Any]:
    """Return all numbers about one fleet that the command prints."""
    case, clients = load.case, max(1, load.clients)
    outage = case.outage
    since = min(CAP, outage / 2)
    dials, asked = by_window(load, DIALS), by_window(load, ("metadata",))
    capped = _between(dials, since, outage)
    after = _between(dials, outage, outage + AFTER)
    asked_after = _between(asked, outage, outage + AFTER)
    mean = capped.total() * BIN / (outage - since)
    tries, back = spread(load, "tries"), spread(load, "back")
    found: dict[str, Any] = {
        "policy": case.policy,
        "setting": case.setting,
        "clients": load.clients,
        "brokers": case.brokers,
        "outage_s": outage,
        "before": _phase(load, -BEFORE, 0.0),
        "during": _phase(load, 0.0, outage),
        "after": _phase(load, outage, outage + AFTER),
        "first_second": {
            "tries_mean": round(sum(n * count for n, count in tries.items()) / clients, 3),
            "tries_max": max(tries, default=0),
        },
        "cap": {
            "from_s": since,
            "dials_per_client_and_s": round(capped.total() / clients / (outage - since), 3),
            "dials_per_10ms": round(mean, 4),
            "peak_over_mean": round(max(capped.values(), default=0) / mean if mean else 0.0, 3),
            "by_chance": round(by_chance(mean, round((outage - since) / BIN)), 3),
        },
        "return": {
            "dials_per_client": round(after.total() / clients, 3),
            "metadata_per_client": round(asked_after.total() / clients, 3),
            "dials_in_fullest_10ms": max(after.values(), default=0),
            "metadata_in_fullest_10ms": max(asked_after.values(), default=0),
            "back": back.total(),
            "back_p50_s": percentile(back, 0.5),
            "back_p99_s": percentile(back, 0.99),
            "back_max_s": max(back) / 1000 if back else None,
        },
    }
    found["missed"] = missed(found)
    return found


def by_window(load: Load, what: Sequence[str], broker: int | None = None) -> Counter[int]:
    """Return the number of attempts or requests by window, at one broker or at all brokers."""
    found: Counter[int] = Counter()
    for (kind, where, window), count in load.counts.items():
        if kind in what and broker in (None, where):
            found[window] += count
    return found


def spread(load: Load, what: str) -> Counter[int]:
    """Return the number of clients by time (`back`) or by number of attempts (`tries`)."""
    return by_window(load, (what,))


def percentile(counts: Counter[int], share: float) -> float | None:
    """Return a percentile of the times in seconds; `counts` has milliseconds as keys."""
    left = int(counts.total() * share)
    for value in sorted(counts):
        left -= counts[value]
        if left < 0:
            return value / 1000
    return None


def _between(counts: Counter[int], start: float, end: float) -> Counter[int]:
    first, last = round(start * WINDOWS), round(end * WINDOWS)
    return Counter({w: n for w, n in counts.items() if first <= w < last})


def _phase(load: Load, start: float, end: float) -> list[dict[str, Any]]:
    """Return each broker's connection attempts and metadata requests per second."""
    seconds: dict[tuple[str, int], Counter[int]] = {}
    first, last = round(start * WINDOWS), round(end * WINDOWS)
    for (kind, broker, window), count in load.counts.items():
        what = "dials" if kind in DIALS else kind
        if first <= window < last and what in ("dials", "metadata"):
            second = (window - first) // WINDOWS
            seconds.setdefault((what, broker), Counter())[second] += count
    phase = []
    for broker in range(1, load.case.brokers + 1):
        one: dict[str, Any] = {"broker": broker}
        for what in ("dials", "metadata"):
            counts = seconds.get((what, broker), Counter())
            mean = round(counts.total() / (end - start), 2)
            one[f"{what}_per_s"] = {"mean": mean, "max": max(counts.values(), default=0)}
        phase.append(one)
    return phase


def missed(found: dict[str, Any]) -> list[str]:
    """Return as text which goals a fleet misses."""
    cap, back, says = found["cap"], found["return"], []
    tries = found["first_second"]["tries_max"]
    if tries > TRIES:
        says.append(f"{tries} tries in the first second, goal {TRIES}")
    some = cap["by_chance"] + 2.0 / max(cap["dials_per_10ms"], 1e-3)  # two attempts may coincide
    allowed = max(PEAK, CHANCE * cap["by_chance"], some)
    if cap["peak_over_mean"] > allowed:
        says.append(f"peak over mean {cap['peak_over_mean']} at the cap, allowed {allowed:.2f}")
    if back["dials_per_client"] > STORM or back["metadata_per_client"] > STORM:
        says.append(
            f"{back['dials_per_client']} connection attempts and "
            f"{back['metadata_per_client']} metadata requests of a client after the return, "
            f"goal {STORM:g}"
        )
    if back["back"] < found["clients"]:
        says.append(f"{found['clients'] - back['back']} clients didn't come back")
    return says


def peak_over_mean(times: Sequence[float], start: float, end: float) -> float:
    """Return the ratio of attempts in the busiest 10 ms to the mean; 0 without attempts."""
    bins = max(1, round((end - start) / BIN))
    counts = Counter(int((t - start) / BIN) for t in times if start <= t < end)
    total = sum(counts.values())
    return max(counts.values()) * bins / total if total else 0.0


def by_chance(mean: float, bins: int) -> float:
    """Return the likely ratio of peak to mean for the same number of attempts at random times.

    The peak of a small fleet can't be lower, whatever the clients do.
    """
    if mean <= 0 or bins < 1:
        return 0.0
    # Begin far above the mean and use logarithms: exp(-mean) is zero for a large fleet.
    count, tail = math.ceil(mean + 12 * math.sqrt(mean) + 40), 0.0
    while True:
        tail += math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        if bins * tail > 0.7 or count == 0:  # `count` is the median of the peak
            return count / mean
        count -= 1


def bare(policy: ExponentialBackoff, clients: int, seconds: float, seed: int) -> list[float]:
    """Return the times of clients' attempts that all fail, with the policy's backoff in between."""
    rng = derived_rng(seed, "bare")
    times = []
    for _ in range(clients):
        now, failures = 0.0, 0
        while now < seconds:
            times.append(now)
            now += policy.delay(failures, rng)
            failures += 1
    return times
