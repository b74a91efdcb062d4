"""Where a query starts and ends: what stands in the options, before any cluster is asked.

In: the options `starting…` and `ending…`. Out: an `OffsetSpec` for each end, by the JVM connector's
precedence: one time for all, a time for each partition, offsets. Must not ask a cluster anything:
`planning` makes offsets of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.spark.offsets import EARLIEST, LATEST, Positions, is_own, positions_from_json
from odradek.spark.option_values import choice, json_object, whole
from odradek.spark.problems import OptionError

logger = logging.getLogger("odradek.spark")

ERROR = "error"
STRATEGY = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One end of a query: a bound or a time for all partitions, or one of them for each."""

    option: str
    bound: int | None = None
    """LATEST or EARLIEST for all; None where the others say it."""
    offsets: Positions = field(default_factory=dict)
    time: int | None = None
    """Milliseconds since the epoch, for all partitions."""
    times: Positions = field(default_factory=dict)
    else_latest: bool = True
    """Whether a partition without a record at or after the time is taken at its end."""

    @property
    def named(self) -> Positions | None:
        """What is said partition by partition; None where it is said for all."""
        if self.bound is not None or self.time is not None:
            return None
        return self.times or self.offsets


def starting_spec(plain: Mapping[str, str], default: str) -> OffsetSpec:
    """Read where to start."""
    strict = choice(plain, STRATEGY, ERROR, "latest") == ERROR
    return _spec(plain, "starting", default, EARLIEST, else_latest=not strict)


def ending_spec(plain: Mapping[str, str]) -> OffsetSpec:
    """Read where a batch query ends."""
    return _spec(plain, "ending", "latest", LATEST, else_latest=True)


def _spec(
    plain: Mapping[str, str], end: str, default: str, least: int, *, else_latest: bool
) -> OffsetSpec:
    names = [f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"]
    given = [name for name in names if name.lower() in plain]
    for name in given[1:]:
        logger.warning("option %s has no effect: option %s goes before it", name, given[0])
    if given and given[0] == names[0]:
        time = whole(names[0], plain[names[0].lower()], least=0)
        return OffsetSpec(names[0], time=time, else_latest=else_latest)
    if given and given[0] == names[1]:
        document = json_object(names[1], plain[names[1].lower()])
        times = positions_from_json(document, f"option {names[1]}", what="a time in ms")
        if not times:
            raise OptionError(f"option {names[1]} names no partition")
        return OffsetSpec(names[1], times=times, else_latest=else_latest)
    return _offsets(names[2], plain.get(names[2].lower(), default), least)


def _offsets(name: str, given: str, least: int) -> OffsetSpec:
    text = given.strip("\0 \t\r\n")
    bounds = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in bounds:
        return OffsetSpec(name, bounds[text.lower()])
    if text.startswith("v1"):
        text = _of_journal(name, text)
    if not text.startswith("{"):
        raise OptionError(f"option {name} must be earliest, latest or JSON, not {text!r:.80}")
    document = json_object(name, text)
    if is_own(document):  # an offset copied from a checkpoint of ours
        document = document.get("o") or {}
    offsets = positions_from_json(document, f"option {name}", least=EARLIEST)
    for tp, offset in sorted(offsets.items()):
        if least == LATEST and offset == EARLIEST:
            raise OptionError(f"option {name}: earliest (-2) can't be the end of {tp}")
    return OffsetSpec(name, None, offsets)


def _of_journal(name: str, text: str) -> str:
    """Find the offsets in a whole file of a checkpoint: `offsets/N` or `sources/0/0`."""
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    found = [line for line in lines if line.startswith("{") and not _is_batch_metadata(line)]
    if len(found) != 1:
        raise OptionError(
            f"option {name} holds a file of a checkpoint with {len(found)} sources: give the line "
            "of the source that is meant"
        )
    return found[0]


def _is_batch_metadata(line: str) -> bool:
    try:
        return "batchWatermarkMs" in json.loads(line)
    except ValueError:
        return False


def check_batch_bounds(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """The JVM connector's rules for batch queries."""
    if starting.bound == LATEST or LATEST in starting.offsets.values():
        raise OptionError("option startingOffsets of a batch query can't be latest (or -1)")
    if ending.bound == EARLIEST:
        raise OptionError("option endingOffsets can't be earliest")
    for starts, ends in ((starting.offsets, ending.offsets), (starting.times, ending.times)):
        if not starts or not ends:
            continue
        if set(starts) != set(ends):
            differing = sorted(set(starts) ^ set(ends))
            raise OptionError(
                f"options {starting.option} and {ending.option} must name the same partitions; "
                f"only one of them names {', '.join(map(str, differing[:10]))}"
            )
        for tp, start in sorted(starts.items()):
            if 0 <= ends[tp] < start:
                raise OptionError(
                    f"{tp}: {starting.option} {start} is behind {ending.option} {ends[tp]}"
                )
