"""Filters that Spark pushes down: plans contain all matching rows, no unnecessary range."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from odradek.common.types import TopicPartition
from odradek.spark.driver import pushdown
from odradek.spark.driver.filters import Narrowing, narrow_by
from odradek.spark.driver.planning import KafkaOffsetRange

RANGES = [
    KafkaOffsetRange(TopicPartition(topic, number), 10, 100)
    for topic in ("ab", "b")
    for number in (0, 1, 2)
]
TOPIC, PARTITION, OFFSET, TIMESTAMP = (
    (name,) for name in ("topic", "partition", "OFFSET", "timestamp")
)


def no_times(times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
    raise AssertionError("nothing was to be asked")


def narrowed(*filters: Filter) -> list[tuple[str, int, int]]:
    narrowing, _ = narrow_by(filters)
    return [(str(r.tp), r.start, r.until) for r in narrowing.narrowed(RANGES, no_times)]


def places(*filters: Filter) -> str:
    _, left = narrow_by(filters)
    assert left == []
    return " ".join(place for place, _, _ in narrowed(*filters))


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], "ab-0 ab-1 ab-2 b-0 b-1 b-2"),
        ([EqualTo(TOPIC, "b")], "b-0 b-1 b-2"),
        ([EqualNullSafe(TOPIC, "b"), EqualTo(PARTITION, 1)], "b-1"),
        ([Not(EqualTo(TOPIC, "b"))], "ab-0 ab-1 ab-2"),
        ([In(PARTITION, (0, 2)), StringStartsWith(TOPIC, "a")], "ab-0 ab-2"),
        ([Not(In(PARTITION, (0, 2)))], "ab-1 b-1"),
        ([StringEndsWith(TOPIC, "b"), StringContains(TOPIC, "a")], "ab-0 ab-1 ab-2"),
        ([GreaterThan(PARTITION, 0), LessThan(PARTITION, 2)], "ab-1 b-1"),
        ([GreaterThanOrEqual(TOPIC, "ac")], "b-0 b-1 b-2"),
        ([LessThanOrEqual(PARTITION, 0), IsNotNull(PARTITION), IsNotNull(TOPIC)], "ab-0 b-0"),
        ([IsNull(PARTITION)], ""),
        ([Not(IsNull(TOPIC)), EqualTo(TOPIC, "c")], ""),
    ],
)
def test_filters_on_topic_and_partition_select_partitions(
    filters: list[Filter], wanted: str
) -> None:
    assert places(*filters) == wanted


@pytest.mark.parametrize(
    ("given", "wanted", "settled"),
    [
        (EqualTo(OFFSET, 20), (20, 21), True),
        (EqualNullSafe(OFFSET, 20), (20, 21), True),
        (GreaterThan(OFFSET, 20), (21, 100), True),
        (GreaterThanOrEqual(OFFSET, 20), (20, 100), True),
        (LessThan(OFFSET, 20), (10, 20), True),
        (LessThanOrEqual(OFFSET, 20), (10, 21), True),
        (In(OFFSET, (20, 30)), (20, 31), False),
        (In(OFFSET, (20,)), (20, 21), True),
        (IsNotNull(OFFSET), (10, 100), True),
        (Not(EqualTo(OFFSET, 20)), (10, 100), False),
        (GreaterThan(OFFSET, -5), (10, 100), True),
    ],
)
def test_filters_on_offset_narrow_the_ranges(
    given: Filter, wanted: tuple[int, int], settled: bool
) -> None:
    _, left = narrow_by([given])
    assert (left == []) is settled
    assert {(a, b) for _, a, b in narrowed(given)} == {wanted}


def test_unsatisfiable_offset_filters_leave_no_range() -> None:
    assert narrowed(LessThan(OFFSET, 10)) == []
    assert narrowed(IsNull(OFFSET)) == []
    assert narrowed(GreaterThan(OFFSET, 50), LessThan(OFFSET, 51)) == []


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("key", "inner"), 1),
        EqualTo(TOPIC, None),
        EqualTo(PARTITION, True),
        EqualTo(OFFSET, 1.5),
        In(PARTITION, (1, None)),
        Not(In(PARTITION, (1, None))),
        Not(Not(EqualTo(PARTITION, 1))),
        LessThan(TIMESTAMP, datetime(2026, 1, 1, tzinfo=UTC)),
        IsNotNull(TIMESTAMP),
        GreaterThan(TIMESTAMP, datetime(2026, 1, 1)),  # noqa: DTZ001 (what is tested)
        EqualTo(("timestampType",), 0),
        GreaterThanOrEqual(TIMESTAMP, datetime(1969, 12, 31, 23, 59, 53, tzinfo=UTC)),
        GreaterThan(TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC)),
        EqualTo(TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_unsupported_filters_are_left_to_spark(given: Filter) -> None:
    narrowing, left = narrow_by([given])
    assert left == [given]
    assert narrowing == Narrowing()


@pytest.mark.parametrize(
    ("kind", "us", "asked"),
    [
        (GreaterThanOrEqual, 5_000_000, 4_999),
        (GreaterThanOrEqual, 5_000_001, 5_000),
        (EqualTo, 5_000_000, 4_999),
        (EqualNullSafe, 5_000_000, 4_999),
        (GreaterThan, 5_000_000, 5_000),
        (GreaterThan, 4_999_999, 4_999),
        (GreaterThan, 0, 0),
        (GreaterThan, -1_000, 0),
        (GreaterThanOrEqual, -999, 0),
    ],
)
def test_a_timestamp_filter_raises_start_offsets_and_is_also_applied_by_spark(
    kind: Any, us: int, asked: int
) -> None:
    zone = timezone(timedelta(hours=5))
    given = kind(
        TIMESTAMP, (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).astimezone(zone)
    )
    narrowing, left = narrow_by([given, EqualTo(TOPIC, "b")])
    assert left == [given]
    b0, b1, b2 = (TopicPartition("b", n) for n in (0, 1, 2))

    def times(wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        assert wanted == dict.fromkeys((b0, b1, b2), asked)
        return {b0: 50, b1: None, b2: 3}

    found = narrowing.narrowed(RANGES, times)
    assert found == [KafkaOffsetRange(b0, 50, 100), KafkaOffsetRange(b2, 10, 100)]


def test_the_latest_of_several_timestamps_is_used_and_an_empty_plan_looks_up_none() -> None:
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    filters = [GreaterThan(TIMESTAMP, zero + timedelta(seconds=n)) for n in (2, 9, 4)]
    narrowing, _ = narrow_by(filters)
    assert narrowing.since_ms == 9_001
    none_left, _ = narrow_by([*filters, EqualTo(TOPIC, "c")])
    assert none_left.narrowed(RANGES, no_times) == []


def _holds(given: Any, topic: str, partition: int, offset: int) -> bool:
    if isinstance(given, Not):
        return not _holds(given.child, topic, partition, offset)
    value: Any = {"topic": topic, "partition": partition, "OFFSET": offset}[given.attribute[0]]
    want: Any = given.value
    tests: dict[str, Callable[[], bool]] = {
        "EqualTo": lambda: value == want,
        "GreaterThan": lambda: value > want,
        "LessThanOrEqual": lambda: value <= want,
        "In": lambda: value in want,
    }
    return tests[type(given).__name__]()


@pytest.mark.slow
def test_pushed_filters_and_those_left_to_spark_together_select_the_matching_rows() -> None:
    rng = random.Random(5)
    constants: dict[tuple[str], list[Any]] = {
        TOPIC: ["a", "ab", "b"],
        PARTITION: [0, 1, 2],
        OFFSET: [5, 10, 11, 50, 99, 100],
    }
    for _ in range(300):
        filters: list[Filter] = []
        for _ in range(rng.randint(1, 4)):
            column = rng.choice([TOPIC, PARTITION, OFFSET])
            kind: Any = rng.choice([EqualTo, GreaterThan, LessThanOrEqual, In])
            value = rng.choice(constants[column])
            made = kind(column, tuple(rng.sample(constants[column], 2)) if kind is In else value)
            filters.append(Not(made) if rng.random() < 0.3 else made)
        narrowing, left = narrow_by(filters)
        read = {
            (r.tp.topic, r.tp.partition, o)
            for r in narrowing.narrowed(RANGES, no_times)
            for o in range(r.start, r.until)
        }
        everything = {
            (t, p, o) for t, p in itertools.product(("ab", "b"), (0, 1, 2)) for o in range(10, 100)
        }
        wanted = {row for row in everything if all(_holds(f, *row) for f in filters)}
        assert {row for row in read if all(_holds(f, *row) for f in left)} == wanted


def test_the_narrowed_ranges_of_pushed_filters_can_be_pickled() -> None:
    narrowing, _ = narrow_by([EqualTo(TOPIC, "b"), GreaterThan(OFFSET, 3)])
    assert pickle.loads(pickle.dumps(narrowing)) == narrowing  # noqa: S301 (our own bytes)


def test_filters_are_pushed_only_in_sparks_filter_planner_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DataSourceReader, pushdown.LIMITS, None, raising=False)
    monkeypatch.delitem(sys.modules, pushdown.PLANNER, raising=False)
    assert not pushdown.planner_pushes()
    monkeypatch.setitem(sys.modules, pushdown.PLANNER, types.ModuleType("planner"))
    assert pushdown.planner_pushes()


def test_filters_are_not_pushed_in_spark_versions_that_reuse_a_plan_for_later_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, pushdown.PLANNER, types.ModuleType("planner"))
    assert hasattr(DataSourceReader, pushdown.LIMITS) == pushdown.planner_pushes()


def test_sparks_filter_planner_is_recognized_if_it_runs_as_the_main_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DataSourceReader, pushdown.LIMITS, None, raising=False)
    monkeypatch.delitem(sys.modules, pushdown.PLANNER, raising=False)
    main = types.ModuleType("__main__")
    main.__spec__ = types.SimpleNamespace(name=pushdown.PLANNER)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert pushdown.planner_pushes()
