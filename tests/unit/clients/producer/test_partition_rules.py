"""Test partitioners: known hashes, users' functions, equal results for columns and records."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from odradek.clients.producer.partition_rules import fnv1a, place_rows, rule_for
from odradek.common.config import PARTITIONERS, PRODUCER, Config
from odradek.common.errors import ConfigurationError, PartitionerError
from odradek.record import SentColumns, SentNumbers, partition_for_key
from odradek.record.arrow_send import columns_from_arrow

LARGE = 2**31 - 1
"""A number of partitions that shows nearly all bits of a hash."""
NAMES = ("consistent", "consistent_random", "murmur2", "fnv1a", "fnv1a_random")


def place(partitioner: Any, key: bytes | None, count: int = LARGE) -> int | None:
    rule = rule_for(partitioner)
    assert rule is not None
    return rule("t", key, b"value", count)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"kafka", 0xD33C4E1),
        (b"giberish123456789", 0x77A58295),
        (b"1234", 0x23BDD03),
        (b"234", 0x2DEA3CD2),
        (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x65CBD69C),
        (b"", 0x7EE3623B),
    ],
)
def test_fnv1a_returns_the_hashes_of_librdkafka_and_sarama(data: bytes, expected: int) -> None:
    assert fnv1a(data) == expected
    assert place("fnv1a", data) == place("fnv1a_random", data) == expected % LARGE
    assert place("fnv1a", data, 7) == expected % 7


@pytest.mark.parametrize(
    ("key", "crc"), [(b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43), (b"abc", 0x352441C2)]
)
def test_the_consistent_partitioners_use_an_unsigned_crc32(key: bytes, crc: int) -> None:
    for name in ("consistent", "consistent_random"):
        assert place(name, key) == crc % LARGE
        assert place(name, key, 10) == crc % 10


@pytest.mark.parametrize(
    ("name", "null", "empty"),
    [
        ("consistent", 0, 0),
        ("consistent_random", None, None),
        ("murmur2", 275646681, 275646681),
        ("fnv1a", 0x7EE3623B, 0x7EE3623B),
        ("fnv1a_random", None, 0x7EE3623B),
    ],
)
def test_the_partition_of_null_and_empty_keys_depends_on_the_partitioner(
    name: str, null: int | None, empty: int | None
) -> None:
    assert (place(name, None), place(name, b"")) == (null, empty)


def test_the_default_murmur2_random_and_random_partitioners_have_no_rule() -> None:
    """Java's default partitioner decides for them; `random` also ignores the keys."""
    without = {name for name in PARTITIONERS if rule_for(name) is None}
    assert without == {"default", "murmur2_random", "random"}


def test_a_partitioner_function_gets_topic_key_value_and_partition_count() -> None:
    asked: list[Any] = []

    class Number:  # an integer type with only `__index__`, as numpy has
        def __index__(self) -> int:
            return 2

    def last(*arguments: Any) -> Any:
        asked.append(arguments)
        return Number()

    assert place(last, b"key", 3) == 2
    assert asked == [("t", b"key", b"value", 3)]


@pytest.mark.parametrize("result", [-1, 3, None, "1", 1.0, True])
def test_an_invalid_result_of_a_partitioner_function_raises(result: Any) -> None:
    def mine(*_: Any) -> Any:
        return result

    with pytest.raises(
        PartitionerError, match=r"mine returned .* of topic t, .* 0 to 2; nothing"
    ) as e:
        place(mine, b"key", 3)
    assert repr(result) in str(e.value)
    assert (e.value.retriable, e.value.row) == (False, None)


def test_an_exception_of_a_partitioner_function_is_the_cause_of_the_error() -> None:
    def mine(*_: Any) -> int:
        raise KeyError("no such customer")

    with pytest.raises(PartitionerError, match="mine raised KeyError for a record of topic t") as e:
        place(mine, b"key", 3)
    assert isinstance(e.value.__cause__, KeyError)


def read(numbers: SentNumbers | None, count: int) -> list[int | None]:
    assert numbers is not None
    validity, data = pa.py_buffer(numbers.validity or b""), pa.py_buffer(numbers.data)
    buffers = [validity if numbers.validity is not None else None, data]
    found: list[int | None] = pa.Array.from_buffers(pa.int32(), count, buffers).to_pylist()
    return found


def pieces(table: pa.Table) -> list[SentColumns]:
    return list(columns_from_arrow(table))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("name", [*NAMES, "a function"])
def test_columns_are_partitioned_like_single_records(name: str, kind: Any) -> None:
    """Include nulls, slices that begin inside a bitmap's byte, and rows with a given partition."""

    def mine(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return len(topic + repr(key) + repr(value)) % count

    rng = random.Random(3)
    partitioner: Any = mine if name == "a function" else name
    rule = rule_for(partitioner)
    assert rule is not None
    keys = [rng.choice((None, b"", b"%d" % n, rng.randbytes(9))) for n in range(101)]
    values = [None if n % 7 == 0 else b"v" * n for n in range(101)]
    given = [n % 5 if n % 3 == 0 else None for n in range(101)]
    whole = pa.table(
        {
            "key": pa.array(keys, kind),
            "value": pa.array(values, kind),
            "partition": pa.array(given, pa.int32()),
        }
    )
    for first, names in (
        (0, ("key", "value")),
        (13, ("key", "value", "partition")),
        (3, ("value",)),
    ):
        columns = pieces(whole.select(names).slice(first))[0]
        placed = place_rows(columns, rule, "t", 5)
        key_at = keys if "key" in names else [None] * 101
        given_at = given if "partition" in names else [None] * 101
        expected = [
            p if p is not None else rule("t", k, v, 5)
            for p, k, v in zip(given_at, key_at, values, strict=True)
        ]
        assert read(placed.partitions, columns.count) == expected[first:]


def test_a_partitioner_error_names_the_row_number_in_the_whole_table() -> None:
    table = pa.concat_tables([pa.table({"value": [b"0", b"1"]}), pa.table({"value": [b"2", b"3"]})])
    second = pieces(table)[1]

    def mine(_: str, __: bytes | None, value: bytes | None, ___: int) -> int:
        return 7 // (3 - int(value or b""))

    rule = rule_for(mine)
    assert rule is not None
    with pytest.raises(PartitionerError, match="row 3: the partitioner .*mine raised Zero") as e:
        place_rows(second, rule, "t", 8)
    assert (e.value.row, type(e.value.__cause__)) == (3, ZeroDivisionError)


def config(**given: Any) -> Config:
    return Config(PRODUCER, {"bootstrap.servers": "a:1"}, **given)


def test_the_partitioner_option_accepts_a_name_or_a_function() -> None:
    assert config()["partitioner"] == "default"
    assert config(partitioner=" Murmur2_Random")["partitioner"] == "murmur2_random"
    assert config(partitioner=partition_for_key)["partitioner"] is partition_for_key
    for wrong in ("murmur3", None, 5):
        with pytest.raises(ConfigurationError, match="one of default, random.* or a function"):
            config(partitioner=wrong)


@pytest.mark.parametrize("partitioner", [*NAMES, "murmur2_random", max])
def test_ignore_keys_is_rejected_with_a_partitioner_that_uses_keys(partitioner: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"ignore\.keys=true contradicts partitioner="):
        config(partitioner=partitioner, partitioner_ignore_keys=True)
    config(partitioner=partitioner, partitioner_ignore_keys=False)
    for name in ("default", "random"):
        config(partitioner=name, partitioner_ignore_keys=True)
