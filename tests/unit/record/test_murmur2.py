"""Compare hashes with those in Kafka's UtilsTest, and some computed with Utils.murmur2."""

from __future__ import annotations

from array import array

import pytest
from tests.unit.record.implementations import ENCODINGS, Encoding

VECTORS = [
    ("21", -973932308, 0),
    ("foobar", -790332482, 0),
    ("a-little-bit-long-string", -985981536, 2),
    ("a-little-bit-longer-string", -1486304829, 5),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5),
    ("abc", 479470107, 3),
    ("", 275646681, 3),
    ("é", 186971271, 3),
    ("tail N123", -538511941, 1),
]


@pytest.mark.parametrize("use", ENCODINGS, ids=lambda encoding: encoding.name)
@pytest.mark.parametrize(("text", "expected", "of_six"), VECTORS)
def test_hash_and_partition_equal_those_of_java(
    use: Encoding, text: str, expected: int, of_six: int
) -> None:
    data = text.encode()
    for same in (data, bytearray(data), memoryview(data)):
        assert use.murmur2(same) == expected
        assert use.partition_for_key(same, 6) == of_six


@pytest.mark.parametrize("use", ENCODINGS, ids=lambda encoding: encoding.name)
def test_any_buffer_is_hashed_by_its_bytes(use: Encoding) -> None:
    """A key in any object with the buffer protocol has the same partition as its bytes."""
    numbers = array("i", range(9))
    for key in (numbers, memoryview(numbers), memoryview(numbers)[::2], memoryview(b"abc")[::-1]):
        data = memoryview(key).tobytes()
        assert use.murmur2(key) == use.murmur2(data)
        assert use.partition_for_key(key, 6) == use.partition_for_key(data, 6)


@pytest.mark.parametrize("use", ENCODINGS, ids=lambda encoding: encoding.name)
def test_invalid_keys_and_partition_counts_are_rejected(use: Encoding) -> None:
    for text in ("text", None, 5):
        with pytest.raises(TypeError):
            use.murmur2(text)
    for partitions in (0, -1):
        with pytest.raises(ValueError, match=f"{partitions} partitions"):
            use.partition_for_key(b"key", partitions)
    assert use.partition_for_key(b"key", 1) == 0
