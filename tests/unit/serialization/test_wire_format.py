"""Test the bytes in front of a payload: schema ids, GUIDs, message indexes."""

from __future__ import annotations

import pytest

from odradek.errors import DeserializationError, SerializationError
from odradek.serialization import MessageField, SerializationContext
from odradek.serialization.wire_format import SchemaId, add_header, schema_of

GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.mark.parametrize(
    ("indexes", "written"),
    [
        (None, ""),
        ((0,), "00"),
        ((1,), "0202"),
        ((1, 0), "040200"),
        ((0, 0), "040000"),
        ((64, 3), "04800106"),
    ],
)
def test_the_prefix_of_a_payload_contains_schema_id_and_message_indexes(
    indexes: tuple[int, ...] | None, written: str
) -> None:
    prefix = SchemaId(258, indexes=indexes).prefix()
    assert prefix.hex() == "0000000102" + written
    found = schema_of(prefix + b"rest", indexed=indexes is not None)
    assert found == (SchemaId(258, indexes=indexes), len(prefix))


@pytest.mark.parametrize("field", MessageField)
@pytest.mark.parametrize("headers", [[("other", b"x")], {"other": b"x"}])
def test_a_record_header_contains_schema_guid_and_message_indexes(
    field: MessageField, headers: list[tuple[str, bytes]] | dict[str, bytes]
) -> None:
    context = SerializationContext("t", field, headers)
    add_header(SchemaId(1, GUID, (2,)), context)
    name = "__key_schema_id" if field is MessageField.KEY else "__value_schema_id"
    assert dict(headers)[name].hex() == "01" + GUID.replace("-", "") + "0204"
    assert schema_of(b"whole", context, indexed=True) == (SchemaId(None, GUID, (2,)), 0)
    other = SerializationContext("t", MessageField.KEY, [("__value_schema_id", b"\1" * 17)])
    assert schema_of(b"\0\0\0\0\7x", other) == (SchemaId(7), 5)


def test_the_prefix_of_a_payload_can_contain_a_schema_guid() -> None:
    assert schema_of(SchemaId(1, GUID).header() + b"x") == (SchemaId(None, GUID), 17)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"\0\0\0\1", r"4 bytes and starts with b'\\x00'"),
        (b"\1" + bytes(15), r"16 bytes and starts with b'\\x01'"),
        (b'{"a": 1}', r"starts with b'\{'"),
    ],
)
def test_data_without_a_schema_id_is_rejected(data: bytes, why: str) -> None:
    with pytest.raises(DeserializationError, match=why):
        schema_of(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends within"),
        (b"\x80", "ends within"),
        (b"\x04\x02", "ends within"),
        (b"\x01", "-1 message indexes"),
        (b"\xff\xff\xff\xff\x0f", "message indexes"),
        (b"\xff\xff\xff\xff\xff\x0f", "more than five bytes"),
    ],
)
def test_invalid_message_indexes_are_rejected(data: bytes, why: str) -> None:
    with pytest.raises(DeserializationError, match=why):
        schema_of(b"\0\0\0\0\1" + data, indexed=True)


def test_a_schema_id_that_cannot_be_encoded_is_rejected() -> None:
    with pytest.raises(SerializationError, match="four bytes"):
        SchemaId(1 << 32).prefix()
    with pytest.raises(SerializationError, match="schema's GUID, which"):
        SchemaId(1).header()
    for context in (None, SerializationContext("t", MessageField.KEY)):
        with pytest.raises(SerializationError, match="needs the record's headers"):
            add_header(SchemaId(1, GUID), context)
