"""The native decoder and the reference agree on any input.

A hundred thousand cases, most of them hostile: rows, errors by type and batch, positions, and the
state for the next call are compared. Skipped where the native module isn't built.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.fuzz import corpus
from tests.fuzz.agreement import all_outcomes, outcome
from tests.fuzz.frames import Frames, make_seeds
from tests.fuzz.kernels import native
from tests.volume import WHOLE, part

from odradek.record import reference

CASES = part(88_000, least=2_000)
ON_AND_ON = part(12_000)
CHUNKS = 8 if WHOLE else 2
kernel = native("kernel")


def differ(number: object, case: tuple[bytes, dict[str, Any]]) -> str:
    return f"case {number}: decode(bytes.fromhex({case[0].hex()!r}), **{case[1]!r})"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_native_decoder_equals_the_reference_for_hostile_batches(chunk: int) -> None:
    frames = Frames(chunk)
    seen: Counter[str] = Counter()
    for number in range(CASES // CHUNKS):
        case = frames.case()
        view = memoryview(case[0])
        expected = outcome(reference.decode, view, case[1])
        assert outcome(kernel.decode, view, case[1]) == expected, differ(number, case)
        if len(expected) == 2:
            seen[expected[0]] += 1
        else:
            seen["rows" if expected[0][0] else "none"] += 1
    # All four outcomes must be frequent, or the cases don't reach their targets.
    errors = {"CorruptRecordError", "RecordLimitError"}
    assert set(seen) == errors | {"rows", "none"}
    assert seen["rows"] > CASES // CHUNKS // 5, seen
    assert seen["CorruptRecordError"] > CASES // CHUNKS // 5, seen


@pytest.mark.parametrize("chunk", range(2))
def test_the_native_decoder_equals_the_reference_in_consecutive_calls(chunk: int) -> None:
    frames = Frames(100 + chunk)
    calls = 0
    for number in range(ON_AND_ON // 2):
        case = frames.case()
        view = memoryview(case[0])
        expected = all_outcomes(reference.decode, view, case[1])
        assert all_outcomes(kernel.decode, view, case[1]) == expected, differ(number, case)
        calls += len(expected)
    assert calls > ON_AND_ON // 2 * 1.2


def test_the_native_decoder_equals_the_reference_for_record_sets_cut_anywhere() -> None:
    """Cut record sets at each byte, as they are, and with a checksum of the cut bytes."""
    for seed in make_seeds(5, 12):
        if len(seed.body) > 600:
            continue
        frames = Frames(1, [seed])
        good = frames._seal(0, seed.checked.copy(), seed.body, True)
        for end in range(len(good) + 1):
            cut = memoryview(good)[:end]
            assert outcome(kernel.decode, cut, {"start_offset": 0}) == outcome(
                reference.decode, cut, {"start_offset": 0}
            )
        for end in range(len(seed.body)):
            bad = memoryview(frames._seal(0, seed.checked.copy(), seed.body[:end], True))
            assert outcome(kernel.decode, bad, {"start_offset": 0}) == outcome(
                reference.decode, bad, {"start_offset": 0}
            )


@pytest.mark.parametrize(("about", "case"), corpus.cases("decode"))
def test_the_native_decoder_equals_the_reference_for_cases_that_once_failed(
    about: str, case: tuple[Any, dict[str, Any]]
) -> None:
    expected = all_outcomes(reference.decode, memoryview(bytes(case[0])), case[1])
    assert all_outcomes(kernel.decode, case[0], case[1]) == expected, about
