"""Test records printed as lines and as JSON."""

from __future__ import annotations

import json
import struct

import pytest

from odradek.cli.console.decoding import FormatError
from odradek.cli.console.formatting import JsonFormatter, RecordFormatter
from odradek.cli.console.properties import UsageError
from odradek.clients.consumer.records import ConsumerRecord

RECORD = ConsumerRecord(
    "t", 3, 42, 1700000000000, 0, b"k", b"v", (("a", b"1"), ("b", None)), leader_epoch=5
)
BARE = ConsumerRecord("t", 0, 0, -1, 0, None, None, (), leader_epoch=-1)
ALL = {
    f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "epoch", "headers")
} | {"print.key": "true"}


@pytest.mark.parametrize(
    ("settings", "record", "line"),
    [
        ({}, RECORD, b"v\n"),
        ({}, BARE, b"null\n"),
        ({"print.key": "true"}, RECORD, b"k\tv\n"),
        ({"print.key": "true", "print.value": "false"}, RECORD, b"k\n"),
        ({"print.value": "false"}, RECORD, b""),
        (ALL, RECORD,
         b"CreateTime:1700000000000\tPartition:3\tOffset:42\tEpoch:5\ta:1,b:null\tk\tv\n"),
        (ALL, BARE,
         b"NO_TIMESTAMP\tPartition:0\tOffset:0\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"),
        ({"print.timestamp": "true"}, RECORD._replace(timestamp_type=1),
         b"LogAppendTime:1700000000000\tv\n"),
        (
            {"print.headers": "true", "print.key": "true", "key.separator": "|",
             "headers.separator": ";", "null.literal": "∅", "line.separator": "\r\n"},
            RECORD,
            "a:1;b:∅|k|v\r\n".encode(),
        ),
        ({}, RECORD._replace(value=b"\xff\x00"), b"\xff\x00\n"),
    ],
)  # fmt: skip
def test_formatter_properties_select_what_is_printed_of_each_record(
    settings: dict[str, str], record: ConsumerRecord, line: bytes
) -> None:
    assert RecordFormatter(settings).line(record) == line


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", struct.pack(">q", -7), b"-7"),
        ("IntegerDeserializer", struct.pack(">i", 7), b"7"),
        ("Short", struct.pack(">h", 7), b"7"),
        ("String", b"caf\xc3\xa9 \xff", "café \N{REPLACEMENT CHARACTER}".encode()),
        ("UUID", b"12345678-1234-5678-1234-567812345678", b"12345678-1234-5678-1234-567812345678"),
    ],
)
def test_kafkas_deserializers_are_supported(name: str, data: bytes, shown: bytes) -> None:
    formatter = RecordFormatter({"value.deserializer": name, "print.key": "true"})
    assert formatter.line(RECORD._replace(value=data)) == b"k\t" + shown + b"\n"
    assert formatter.line(BARE) == b"null\tnull\n"


@pytest.mark.parametrize(
    ("name", "says"), [("Long", "needs 8 bytes, not 1"), ("UUID", "is not the text of a UUID")]
)
def test_data_that_a_deserializer_rejects_raises_an_error(name: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        RecordFormatter({"value.deserializer": name}).line(RECORD)


def test_an_unknown_deserializer_is_rejected() -> None:
    with pytest.raises(
        UsageError, match=r"key\.deserializer: unknown deserializer com\.acme\.Mine"
    ):
        RecordFormatter({"key.deserializer": "com.acme.Mine"})


def test_a_record_is_printed_as_json() -> None:
    line = JsonFormatter().line(RECORD._replace(key=b"\xff"))
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1700000000000,
        "timestamp_type": "CreateTime",
        "leader_epoch": 5,
        "key": {"base64": "/w=="},
        "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }


HOSTILE = ConsumerRecord(
    "t", 0, 0, 0, 0, b"k\x1b]0;owned\x07", b"a\tb\r\nc\xc2\x9b2J\xff\xe2\x80\xae\x7f",
    (("h\x1b\n", b"\x1bc"),), leader_epoch=0,
)  # fmt: skip


def test_control_characters_of_records_are_escaped() -> None:
    settings = {"print.key": "true", "print.headers": "true"}
    raw = RecordFormatter(settings).line(HOSTILE)
    assert HOSTILE.value is not None
    assert HOSTILE.value in raw
    shown = RecordFormatter(settings, escaped=True).line(HOSTILE)
    assert shown == (
        rb"h\x1b\n:\x1bc" + b"\t" + rb"k\x1b]0;owned\x07" + b"\ta\t"
        rb"b\r\nc\x9b2J\xff\u202e\x7f" + b"\n"
    )
    plain = RecordFormatter({}, escaped=True).line(RECORD._replace(value="grün 👍".encode()))
    assert plain == "grün 👍\n".encode()


def test_escaped_json_is_printable_and_decodes_to_the_same_record() -> None:
    record = HOSTILE._replace(value="\x7f\u202e\x9b ü".encode())
    shown = JsonFormatter(escaped=True).line(record)
    assert json.loads(shown) == json.loads(JsonFormatter().line(record))
    assert shown.decode().rstrip("\n").isprintable()
