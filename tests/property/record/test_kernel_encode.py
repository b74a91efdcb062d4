"""The native encoder and builder write the same bytes as the Python ones, for any input.

Columns are valid, invalid, or change after they were checked; records are appended individually.
Batches, results and errors must be equal. Skipped where the native module isn't built.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from tests.fuzz import appends, corpus, sent
from tests.fuzz.kernels import native
from tests.fuzz.race import races
from tests.volume import WHOLE, part

from odradek.record import builder, encoder, murmur2, partition_for_key
from odradek.record.sent_columns import SentColumns, StopReason

SENDINGS = part(16_000, least=1_000)
APPENDINGS = part(8_000, least=500)
CHUNKS = 4 if WHOLE else 2
ROUNDS = 12 if WHOLE else 3
kernel = native("kernel_encode")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_kernel_and_the_python_encoder_produce_the_same_batches(chunk: int) -> None:
    cases = sent.Sendings(chunk)
    seen: Counter[str] = Counter()
    for number in range(SENDINGS // CHUNKS):
        case = cases.case()
        expected = sent.drive(encoder.ColumnEncoder, builder.BatchBuilder, case)
        found = sent.drive(kernel.ColumnEncoder, kernel.BatchBuilder, case)
        assert sent.agree(case, found, expected), f"chunk {chunk}, case {number}: {case}"
        first = expected[0][0]
        seen[first if isinstance(first, str) and len(first) > 1 else "rows"] += 1
    assert min(seen["rows"], seen["InvalidRowError"]) > SENDINGS // CHUNKS // 5, seen
    assert seen["RecordTooLargeError"], seen


def test_results_before_an_invalid_header_name_must_still_be_equal() -> None:
    case = replace(sent.Sendings(0).case(), extra=4)
    first, done = (2, StopReason.BATCH, 0, 9, 0, 0), (5, StopReason.DONE, -1, 0, 70, 0)
    torn = ("InvalidRowError", 3, True)
    twin = [first, torn]
    assert sent.agree(case, [first, torn], twin)
    assert sent.agree(case, [first, done, 1, b"x"], twin)
    assert sent.agree(case, [first, ("InvalidRowError", 4, False)], twin)
    assert not sent.agree(replace(case, extra=3), [first, done], twin)
    assert not sent.agree(case, [done, torn], twin)
    assert not sent.agree(case, [first], twin)
    assert not sent.agree(case, [first, first], twin), "it stops short of the row"
    assert not sent.agree(case, [first, ("InvalidRowError", 2, False)], twin)
    assert not sent.agree(case, [first, torn], [first, done]), "the kernel asked before"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_native_builder_equals_the_reference_for_single_records(chunk: int) -> None:
    cases = appends.Appending(chunk)
    taken = refused = full = 0
    for number in range(APPENDINGS // CHUNKS):
        case = cases.case()
        expected = appends.drive(builder.BatchBuilder, case)
        found = appends.drive(kernel.BatchBuilder, case)
        assert found == expected, f"chunk {chunk}, case {number}: {case}"
        taken += sum(isinstance(told, int) for told in expected[1 : len(case.records) + 1])
        refused += expected.count("refused")
        full += expected.count(None)
    assert min(taken, refused, full) > APPENDINGS // CHUNKS // 5, (taken, refused, full)


@pytest.mark.parametrize(("about", "case"), corpus.cases("encode"))
def test_the_native_encoder_equals_the_reference_for_cases_that_once_failed(
    about: str, case: sent.Case
) -> None:
    expected = sent.drive(encoder.ColumnEncoder, builder.BatchBuilder, case)
    assert sent.drive(kernel.ColumnEncoder, kernel.BatchBuilder, case) == expected, about


def test_two_encoders_can_continue_the_same_batch_in_turn() -> None:
    """Check that the first encoder stops: otherwise both would write to the same memory."""
    columns = SentColumns(3, None)
    first, second = (kernel.ColumnEncoder(columns, 1, 1000) for _ in range(2))
    batch = kernel.BatchBuilder(1000, None)
    first.use(0, batch)
    second.use(0, batch)
    at_most: dict[str, Any] = {"timestamp_ms": 5, "room": 1000, "sticky": 0, "sticky_room": 1000}
    assert first.encode(0, 3, **at_most)[:3] == (0, StopReason.BATCH, 0)
    assert second.encode(0, 3, **at_most)[:2] == (3, StopReason.DONE)
    first.use(0, batch)
    assert first.encode(0, 3, **at_most)[:2] == (3, StopReason.DONE)
    places = [(piece.first, piece.count) for piece in (*first.pieces(), *second.pieces())]
    assert places == [(3, 3), (0, 3)]


def test_columns_and_batches_may_change_while_they_are_encoded() -> None:
    assert sum(islice(races(kernel, 1), ROUNDS)) > 80 * ROUNDS


def test_the_native_murmur2_equals_the_reference() -> None:
    rng = random.Random(4)
    for size in [*range(70), 100, 1000] * 8:
        key = rng.randbytes(size)
        assert kernel.murmur2(key) == murmur2(key)
        assert kernel.murmur2(memoryview(b"x" + key)[1:]) == murmur2(key)
        for partitions in (1, 2, 7, 1000, 2**31 - 1):
            place = kernel.partition_for_key(key, partitions)
            assert place == partition_for_key(key, partitions)
