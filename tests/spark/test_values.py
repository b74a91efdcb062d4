"""Decoded values beside Spark's own `from_json` of the same bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from .conftest import Topics

SCHEMA = "a bigint, b string, d date, n double, l array<int>, s struct<q: boolean, r: string>"
VALUES = [
    b'{"a":1,"b":"x","d":"2024-01-02","n":1.5,"l":[1,null],"s":{"q":true,"r":"\\u00e4"},"z":1}',
    b"",
    b"{",
    b"{}",
    b"null",
    b'{"a":"x","b":"kept"}',
    b'{"b":{"x": [1, 2]},"a":7}',
    b'{"b":5,"n":3}',
    b'{"a":9223372036854775808,"n":1e3}',
    b'{"s":{"q":1,"r":"kept"},"a":7}',
    b'{"d":"no date","a":7}',
    b' {"a" : 2}\n',
]


@pytest.mark.timeout(300)
def test_values_are_what_from_json_makes_of_them(
    topics: Topics, read: Callable[..., DataFrame]
) -> None:
    topic = topics.create(1)
    topics.fill(topic, [(b"k", value) for value in VALUES] + [(b"k", None)], 1)
    wanted = read(topic).selectExpr("offset o", f"from_json(cast(value as string), '{SCHEMA}') v")
    asked = {"valueFormat": "json", "valueSchema": SCHEMA}
    found = read(topic, **asked).selectExpr("offset o", "value v")
    assert found.schema["v"].dataType == wanted.schema["v"].dataType
    differing = {
        row.o: (row.v, theirs.v)
        for row, theirs in zip(found.collect(), wanted.collect(), strict=True)
        if row != theirs
    }
    assert differing == {}
    with pytest.raises(Exception, match=r"-0: the value at offset 2 doesn't fit"):
        read(topic, **asked, valueMode="failfast").select("value.a").collect()
