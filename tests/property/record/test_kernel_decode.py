"""The native decoder and the reference agree on whatever they are given.

A hundred thousand cases, most of them hostile, and each goes through both: rows, errors by type and
batch, positions, what goes on to the next call. Where no kernel is built there is nothing to test.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz import corpus
from tests.fuzz.agreement import all_outcomes, outcome
from tests.fuzz.frames import Frames, make_seeds
from tests.fuzz.kernels import native

from odradek.record import reference
from odradek.record.columns import Row
from odradek.record.reference import encode, encode_marker

CASES = 88_000
ON_AND_ON = 12_000
CHUNKS = 8
kernel = native("kernel")


def differ(number: object, case: tuple[bytes, dict[str, Any]]) -> str:
    return f"case {number}: decode(bytes.fromhex({case[0].hex()!r}), **{case[1]!r})"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_hostile_batches(chunk: int) -> None:
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
    # All must come up often, or the cases don't reach what they are meant to reach.
    errors = {"CorruptRecordError", "UnsupportedFeatureError", "RecordLimitError"}
    assert set(seen) == errors | {"rows", "none"}
    assert seen["rows"] > CASES // CHUNKS // 5, seen
    assert seen["CorruptRecordError"] > CASES // CHUNKS // 5, seen


@pytest.mark.parametrize("chunk", range(2))
def test_calls_that_go_on(chunk: int) -> None:
    frames = Frames(100 + chunk)
    calls = 0
    for number in range(ON_AND_ON // 2):
        case = frames.case()
        view = memoryview(case[0])
        expected = all_outcomes(reference.decode, view, case[1])
        assert all_outcomes(kernel.decode, view, case[1]) == expected, differ(number, case)
        calls += len(expected)
    assert calls > ON_AND_ON // 2 * 1.2


def test_every_end_of_a_record_set() -> None:
    """A buffer may end anywhere, also where its checksum is right up to there."""
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


TIMES = st.integers(-1, 2**63 - 1)
BYTES = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 9000).map(bytes))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
ROWS = st.lists(st.tuples(st.integers(1, 3), TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=9)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A log as a broker may have it, compacted and compressed; its first and last offset."""
    first = offset = draw(st.integers(0, 2**40))
    parts = []
    for drawn in draw(st.lists(ROWS, min_size=1, max_size=4)):
        rows: list[Row] = []
        producer = draw(st.sampled_from([-1, 7, 8]))
        for gap, time, key, value, headers in drawn:
            offset += gap
            rows.append((offset, time, 0, key, value, tuple(headers)))
        codec = draw(st.sampled_from([None, None, "gzip", "snappy", "lz4", "zstd"]))
        append = draw(st.none() | TIMES)
        parts.append(
            encode(
                rows,
                compression=codec,
                log_append_time_ms=append,
                producer_id=producer,
                transactional=producer >= 0,
            )
        )
        if producer >= 0 and draw(st.booleans()):
            offset += 1
            commit = draw(st.booleans())
            marker = encode_marker(offset, 5, producer_id=producer, producer_epoch=0, commit=commit)
            parts.append(marker)
    return b"".join(parts), first, offset


@settings(max_examples=150)
@given(logs(), st.data())
def test_sound_logs(log: tuple[bytes, int, int], data: st.DataObject) -> None:
    buffer, first, last = log
    start = data.draw(st.integers(max(first - 1, 0), last + 2))
    aborted = data.draw(st.lists(st.tuples(st.sampled_from([7, 8, 9]), st.integers(first, last))))
    arguments = {
        "start_offset": start,
        "until_offset": data.draw(st.none() | st.integers(start, last + 2)),
        "aborted": tuple(aborted[:3]),
        "want_key": data.draw(st.booleans()),
        "want_value": data.draw(st.booleans()),
        "want_headers": data.draw(st.booleans()),
        "max_records": data.draw(st.none() | st.integers(1, 5)),
        "stop_after": data.draw(st.none() | st.integers(1, 5)),
    }
    view = memoryview(buffer)
    expected = all_outcomes(reference.decode, view, arguments)
    assert all_outcomes(kernel.decode, view, arguments) == expected


@pytest.mark.parametrize(("about", "case"), corpus.cases("decode"))
def test_what_was_found_once(about: str, case: tuple[Any, dict[str, Any]]) -> None:
    expected = all_outcomes(reference.decode, memoryview(bytes(case[0])), case[1])
    assert all_outcomes(kernel.decode, case[0], case[1]) == expected, about


def test_the_checksum() -> None:
    rng = random.Random(3)
    noise = rng.randbytes(30_000)
    for _ in range(3000):
        at = rng.randrange(40)
        size = rng.choice((rng.randrange(70), rng.randrange(900), rng.randrange(29_000)))
        data = noise[at : at + size]
        expected = google_crc32c.value(data)
        assert kernel.crc32c(data) == kernel.crc32c_by_table(data) == expected
