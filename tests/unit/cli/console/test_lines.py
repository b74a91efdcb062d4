"""Test how lines of standard input are split, as by Kafka's line reader."""

from __future__ import annotations

import pytest

from odradek.cli.console.lines import LineError, LineParser, ParsedLine
from odradek.cli.console.properties import UsageError

KEYED = {"parse.key": "true"}
BOTH = {"parse.key": "true", "parse.headers": "true"}
NULLS = {**BOTH, "null.marker": "NULL"}


@pytest.mark.parametrize(
    ("settings", "line", "key", "value", "headers"),
    [
        ({}, b"value", None, b"value", ()),
        ({}, b"", None, b"", ()),
        ({}, b"no\tkey", None, b"no\tkey", ()),
        ({}, b"\xff\x00", None, b"\xff\x00", ()),
        (KEYED, b"k\tv", b"k", b"v", ()),
        (KEYED, b"k\tv\tw", b"k", b"v\tw", ()),
        (KEYED, b"\t", b"", b"", ()),
        ({**KEYED, "key.separator": "::"}, b"k:x::v", b"k:x", b"v", ()),
        ({**KEYED, "key.separator": "→"}, "k→v".encode(), b"k", b"v", ()),
        ({**KEYED, "ignore.error": "true"}, b"no key", None, b"no key", ()),
        (BOTH, b"a:1,b:2\tk\tv", b"k", b"v", (("a", b"1"), ("b", b"2"))),
        (BOTH, b"a:1,\tk\tv", b"k", b"v", (("a", b"1"),)),
        (BOTH, b"a:\tk\tv", b"k", b"v", (("a", b""),)),
        (BOTH, b"a:1:2\tk\tv", b"k", b"v", (("a", b"1:2"),)),
        ({**BOTH, "ignore.error": "true"}, b"\tk\tv", b"k", b"v", (("", None),)),
        ({"parse.headers": "true"}, b"a:1\tv\tw", None, b"v\tw", (("a", b"1"),)),
        ({**BOTH, "ignore.error": "true"}, b"odd\tk\tv", b"k", b"v", (("odd", None),)),
        ({**BOTH, "ignore.error": "true"}, b"nothing", None, b"nothing", ()),
        (NULLS, b"NULL\tNULL\tNULL", None, None, ()),
        (NULLS, b"a:NULL,b:x\tk\tNULLS", b"k", b"NULLS", (("a", None), ("b", b"x"))),
    ],
)
def test_a_line_is_split_into_headers_key_and_value(  # type: ignore[no-untyped-def]
    settings: dict[str, str], line: bytes, key: object, value: object, headers: object
):
    assert LineParser(settings).parse(line) == ParsedLine(key, value, headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "line", "says"),
    [
        (KEYED, b"no key", r"no key\.separator \('\\t'\)"),
        (BOTH, b"no headers", r"no headers\.delimiter"),
        (BOTH, b"a:1\tno key", r"no key\.separator"),
        (BOTH, b"\tk\tv", r"no headers\.key\.separator \(':'\) in header ''"),
        (BOTH, b"odd\tk\tv", r"no headers\.key\.separator \(':'\) in header 'odd'"),
        (NULLS, b"NULL:1\tk\tv", "can't be the null marker"),
        (BOTH, b"\xff:1\tk\tv", "isn't UTF-8"),
    ],
)
def test_a_line_without_a_required_part_is_rejected(
    settings: dict[str, str], line: bytes, says: str
) -> None:
    with pytest.raises(LineError, match=says):
        LineParser(settings).parse(line)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator"),
        ({"headers.delimiter": ":"}, "headers.delimiter and headers.key.separator"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator"),
        ({"null.marker": ","}, "null.marker and headers.separator"),
        ({"null.marker": "\t"}, "null.marker and key.separator"),
        ({"key.separator": ""}, "key.separator mustn't be empty"),
    ],
)
def test_ambiguous_separators_are_rejected(settings: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        LineParser(settings)
