"""Vectors of Kafka's UtilsTest, and some made by its Utils.murmur2."""

from __future__ import annotations

import pytest

from odradek.record import murmur2, partition_for_key

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


@pytest.mark.parametrize(("text", "expected", "of_six"), VECTORS)
def test_equals_java(text: str, expected: int, of_six: int) -> None:
    assert murmur2(text.encode()) == expected
    assert partition_for_key(text.encode(), 6) == of_six
