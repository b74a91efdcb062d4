"""Records appended one by one, valid and invalid, for the builders.

In: a seed. Out: an endless series of cases, and `drive`, which returns all results of a case with
a builder.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.sent import SIZES, Outcome

from odradek.common.errors import IllegalStateError
from odradek.record.compression import CODECS

_LONG = 1 << 63
NOISE = random.Random(9).randbytes(1 << 17)
NAMES = ("h", "", "trace-id", "schlüssel", "n" * 70, "n" * 200, "\U0001f600", "\x00", "€" * 40)
BAD_NAMES = ("\ud800", "a\udfff", None, b"bytes", 5)
LARGE_SIZES = (*SIZES, 4000, 4096, 9000, 40_000, 70_000)
NOT_BYTES: tuple[Any, ...] = ("text", 5, 1.5, object, ["x"])
BUFFERS: tuple[Any, ...] = (
    *(bytearray(b"abc"), memoryview(b"xyz")[1:], bytearray(), memoryview(b"")),
    *(array("i", (1, 2, 3)), memoryview(array("q", (5,))), bytearray(NOISE[:5000])),
)
Record = tuple[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Appends:
    """Records, and the parameters of their builder."""

    limit: int
    codec: str | None
    level: int | None
    records: Sequence[Record]
    ends: int
    """Action after the records: 1 the builder is closed, 2 built again, 3 released."""


class Appending:
    """Cases for `drive`, which depend on the seed only."""

    def __init__(self, seed: int) -> None:
        self._chance: Callable[[], float] = random.Random(seed).random
        self._nonsense = False
        self._made: dict[tuple[bool, bool], list[tuple[Any, Any, Any]]] = {}
        # created once: a new record each time costs more than its append
        for nonsense in (False, True):
            for sizes, count in ((SIZES, 500), (LARGE_SIZES, 250)):
                self._nonsense = nonsense
                self._made[nonsense, sizes is SIZES] = [
                    (self._content(sizes), self._content(sizes), self._headers())
                    for _ in range(count)
                ]

    def _pick(self, count: int) -> int:
        return int(self._chance() * count)

    def _one(self, choice: Sequence[Any]) -> Any:
        return choice[int(self._chance() * len(choice))]

    def _content(self, sizes: Sequence[int]) -> Any:
        chance = self._chance()
        if chance < 0.2:
            return None
        if chance > 0.97:
            return self._one(NOT_BYTES if self._nonsense and chance > 0.99 else BUFFERS)
        at = self._pick(1000)
        return NOISE[at : at + self._one(sizes)]

    def _headers(self) -> Any:
        chance = self._chance()
        if chance < 0.6:
            return ()
        names = BAD_NAMES if self._nonsense and chance > 0.97 else NAMES
        found = [(self._one(names), self._content(SIZES)) for _ in range(self._one((1, 1, 2, 7)))]
        if self._nonsense and chance > 0.99:
            return self._one(([("one",)], [("a", b"", b"")], ["ab"], [("h", "text")], 5, "text"))
        return found if self._pick(2) else tuple(found)

    def case(self) -> Appends:
        """Create the next case."""
        chance, one = self._chance, self._one
        count = one((1, 1, 1, 2, 2, 3, 5, 9, 20, 70 if chance() < 0.9 else 200))
        # A record may be refused for its content or for its time, so only one is invalid.
        self._nonsense = chance() < 0.4
        base = one((1_700_000_000_000, 0, -1, _LONG - 1)) if not self._nonsense else 5
        spread = one((1, 10, 100_000))
        made = self._made[self._nonsense, count > 5]
        records: list[Record] = []
        for _ in range(count):
            time = base + self._pick(spread) if base < _LONG - 1 else base - self._pick(spread)
            if not self._nonsense and chance() < 0.02:
                time = one((-1, -2, -_LONG, _LONG - 1, _LONG, 1 << 70, 5, 0))
            records.append((*one(made), time))
        return Appends(
            one((-5, 0, 61, 62, 100, 200, 1000, 5000, 1 << 14, 1 << 17)),
            None if chance() < 0.95 else one(CODECS),
            None,
            records,
            self._pick(4),
        )


def attempt(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or "refused" for any error that an argument may cause."""
    try:
        found = call()
    except (TypeError, BufferError, AttributeError, ValueError, OverflowError):
        return "refused"
    except IllegalStateError:
        return "IllegalStateError"
    return bytes(found) if isinstance(found, memoryview) else found


def drive(builders: Any, case: Appends) -> Outcome:
    """Append all records and return each result and the batch."""
    made = builders(case.limit, case.codec, case.level)
    told: Outcome = [attempt(made.build)]
    for number, (key, value, headers, time) in enumerate(case.records):
        if case.ends == 1 and number == 60:
            made.close()
        if case.ends == 2 and number % 16 == 8:
            made.limit_bytes = made.limit_bytes + 300
        told.append(
            attempt(
                lambda key=key, value=value, headers=headers, time=time: made.append(  # type: ignore[misc]
                    key, value, headers, time
                )
            )
        )
    told += [made.count, made.estimated_size, made.limit_bytes, made.max_timestamp_ms, made.closed]
    told.append(attempt(lambda: made.build(producer_id=5, producer_epoch=0, base_sequence=1)))
    if case.ends == 2:
        told.append(attempt(lambda: made.build(producer_id=5, producer_epoch=0, base_sequence=1)))
        told.append(attempt(lambda: made.build(producer_id=5, producer_epoch=1, base_sequence=0)))
        told.append(attempt(lambda: made.build(producer_id=6, transactional=True)))
    if case.ends == 3:
        made.release()
        told.append(attempt(made.build))
    told += [attempt(lambda: made.append(b"", b"", (), 0)), made.count, made.closed]
    return told
