"""Records that are added to open batches, valid and invalid, for `OpenBatches`.

In: a seed. Out: an endless series of cases, and `drive`, which returns all results of an
implementation: futures, delivery reports, counters of a partition, and the batches' bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.fuzz.appends import Appending, Record, attempt
from tests.fuzz.sent import Outcome
from tests.unit.record.test_open_batches import Batch, Future, Lane

NOW = 1_700_000_000.25
PARTITIONS = 4
TOPICS: tuple[Any, ...] = ("t", "t", "t", "t", "old", "none", None, 5, b"t", ["t"])
PLACES: tuple[Any, ...] = (None, None, None, 0, 1, 2, 7, -1, True, 1.0, "1", 1 << 70, [0])
TIMES: tuple[Any, ...] = (
    0,
    0,
    5,
    -1,
    None,
    1.5,
    "x",
    True,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    1 << 80,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One record, with the arguments of `send` or `report`."""

    report: bool
    topic: Any
    partition: Any
    record: Record


@dataclass(frozen=True, slots=True)
class Sends:
    """The records that a producer with some open batches gets."""

    limit: int
    open: Sequence[int]
    by_key: bool
    here: bool
    by_class: bool
    room: tuple[int, int]
    told: bool
    """Whether the batches are finished, so that their delivery reports can be created."""
    steps: Sequence[Step]


class Sending:
    """Cases for `drive`, which depend on the seed only."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._records = Appending(seed)

    def case(self) -> Sends:
        """Create the next case."""
        rng = self._rng
        appends = self._records.case()
        steps = []
        for key, value, headers, time in appends.records:
            wild = rng.random() < 0.1
            if rng.random() < 0.3:
                time = rng.choice(TIMES)
            topic = rng.choice(TOPICS) if wild else "t"
            place = rng.choice(PLACES) if wild else rng.choice(PLACES[:6])
            steps.append(Step(rng.random() < 0.5, topic, place, (key, value, headers, time)))
        return Sends(
            appends.limit,
            [n for n in range(PARTITIONS) if rng.random() < 0.8],
            rng.random() < 0.7,
            rng.random() < 0.95,
            rng.random() < 0.7,
            (rng.choice((0, 1, 3, 1000)), rng.choice((-1, 0, 10, 1 << 20))),
            rng.random() < 0.2,
            steps,
        )


def lane(implementation: Any, snapshot: object, case: Sends) -> Lane:
    """Return a topic with the case's open batches."""
    batches = {n: Batch(implementation.BatchBuilder(case.limit, None)) for n in case.open}
    made = Lane(implementation, snapshot, batches)
    made.by_key = case.by_key
    return made


def notes_of(implementation: Any, told: bool, late: list[int]) -> Any:
    """Return the data that is kept for the delivery reports of a batch."""

    class Reports(implementation.Notes):  # type: ignore[misc]
        def late(self) -> None:
            late.append(1)

    made = Reports()
    made.can_be_made = told
    return made


def drive(implementation: Any, case: Sends) -> Outcome:
    """Add all records, and return each result, the delivery reports and the batches."""
    newest = object()
    lanes = {n: lane(implementation, at, case) for n, at in (("t", newest), ("old", object()))}
    places = {batch: place for place, batch in lanes["t"].open.items()}
    make: Any = Future if case.by_class else lambda *given: given
    opened = implementation.OpenBatches(
        lanes, SimpleNamespace(snapshot=newest), SimpleNamespace(here=case.here), lambda: NOW, make
    )
    room = implementation.Room(*case.room)
    late: list[int] = []
    notes = {batch: notes_of(implementation, case.told, late) for batch in lanes["t"].open.values()}
    told: Outcome = []
    for step in case.steps:
        key, value, headers, time = step.record
        if step.report:
            found = attempt(
                lambda s=step, k=key, v=value, t=time: opened.report(  # type: ignore[misc]
                    room, notes, 0.5, s.topic, k, v, s.partition, t, len
                )
            )
        else:
            found = attempt(
                lambda s=step, k=key, v=value, h=headers, t=time: opened.send(  # type: ignore[misc]
                    room, s.topic, k, v, h, t, s.partition
                )
            )
        told.append(answer(found, places))
    told += [room.messages, room.size, len(late)]
    for batch, note in notes.items():
        told += [places[batch], note.items(), note.size, batch.builder.count]
        told.append(attempt(batch.builder.build))
    return told


def answer(found: Any, places: dict[Batch, int]) -> Any:
    """Return a future, or the arguments of a callback, in a form that can be compared."""
    if isinstance(found, Future):
        rest = (found._cancelled, found._listeners)
        return ("future", places[found._batch], found._index, found._timestamp_ms, rest)
    if isinstance(found, tuple):
        _, batch, index, at = found
        return ("made", places[batch], index, at)
    return found


def agree(ours: Outcome, theirs: Outcome) -> bool:
    """Return whether two implementations agree.

    An invalid record may be refused before or after it is found that the batch is full.
    """
    return len(ours) == len(theirs) and all(
        one == other or (one == "refused" and type(other) is int)
        for one, other in zip(ours, theirs, strict=True)
    )
