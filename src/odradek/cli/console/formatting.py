"""Format records as lines, by the properties of Kafka's message formatter.

In: a `ConsumerRecord`. Out: bytes, or with `--json` one object. Must not: write anything.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from uuid import UUID

from odradek.cli.console.decoding import Decoder, FormatError, as_bytes, bytes_or_text, plain
from odradek.cli.console.properties import refuse, truth
from odradek.cli.console.terminal import for_terminal
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.printable import json_escape, printable

PROPERTIES = (
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.epoch",
    "print.headers",
    "print.key",
    "print.value",
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
    "key.deserializer",
    "value.deserializer",
    "headers.deserializer",
)
"""Properties for `--formatter-property`."""

TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}

Deserializer = Callable[[bytes], bytes]


def _number(name: str, code: str) -> Deserializer:
    size = struct.calcsize(code)

    def deserialize(data: bytes) -> bytes:
        if len(data) != size:
            raise FormatError(f"{name} needs {size} bytes, not {len(data)}")
        return str(struct.unpack(code, data)[0]).encode()

    return deserialize


def _uuid(data: bytes) -> bytes:
    try:
        return str(UUID(data.decode())).encode()
    except ValueError:
        raise FormatError(f"UUID: {data!r} is not the text of a UUID") from None


_DESERIALIZERS: dict[str, Deserializer] = {
    "String": lambda data: data.decode(errors="replace").encode(),
    "Short": _number("Short", ">h"),
    "Integer": _number("Integer", ">i"),
    "Long": _number("Long", ">q"),
    "UUID": _uuid,
}
_JAVA = "org.apache.kafka.common.serialization."


def deserializer(name: str | None, where: str) -> Deserializer | None:
    """Return Kafka's deserializer by its class name ("String" is enough); None: keep the bytes."""
    if name is None:
        return None
    found = _DESERIALIZERS.get(name.strip().removeprefix(_JAVA).removesuffix("Deserializer"))
    if found is None:
        known = ", ".join(f"{_JAVA}{n}Deserializer" for n in _DESERIALIZERS)
        refuse(f"{where}: unknown deserializer {name}; use one of {known}")
    return found


class RecordFormatter:
    """Writes records as Kafka's console consumer does."""

    def __init__(
        self,
        settings: Mapping[str, str],
        key: Decoder | None = None,
        value: Decoder | None = None,
        *,
        escaped: bool = False,
    ) -> None:
        """Read the properties; with `escaped`, escape records' terminal controls (R-IN-3)."""
        self._escaped = escaped
        self._timestamp = truth(settings, "print.timestamp")
        self._partition = truth(settings, "print.partition")
        self._offset = truth(settings, "print.offset")
        self._epoch = truth(settings, "print.epoch")
        self._headers = truth(settings, "print.headers")
        self._key = truth(settings, "print.key")
        self._value = truth(settings, "print.value", default=True)
        self._separator = settings.get("key.separator", "\t").encode()
        self._line_end = settings.get("line.separator", "\n").encode()
        self._headers_separator = settings.get("headers.separator", ",").encode()
        self._null = settings.get("null.literal", "null").encode()
        self._of_key, self._of_value, self._of_headers = (
            deserializer(settings.get(name), name)
            for name in ("key.deserializer", "value.deserializer", "headers.deserializer")
        )
        for name, decode in (("key", key), ("value", value)):
            if decode is not None and f"{name}.deserializer" in settings:
                refuse(f"--decode-{name} and {name}.deserializer can't be given together")
        self._of_key = _in_bytes(key) or self._of_key
        self._of_value = _in_bytes(value) or self._of_value

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the record's line with its line break. Raises `FormatError` if decoding fails."""
        columns: list[bytes] = []
        if self._timestamp:
            kind = TIMESTAMP_TYPES.get(record.timestamp_type)
            known = kind is not None and record.timestamp_ms >= 0
            columns.append(f"{kind}:{record.timestamp_ms}".encode() if known else b"NO_TIMESTAMP")
        if self._partition:
            columns.append(b"Partition:%d" % record.partition)
        if self._offset:
            columns.append(b"Offset:%d" % record.offset)
        if self._epoch:
            known = record.leader_epoch >= 0
            columns.append(b"Epoch:%d" % record.leader_epoch if known else b"Epoch:NOT_PRESENT")
        if self._headers:
            columns.append(self._all_headers(record))
        if self._key:
            columns.append(self._field(record.key, self._of_key))
        if self._value:
            columns.append(self._field(record.value, self._of_value))
        return self._separator.join(columns) + self._line_end if columns else b""

    def _all_headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = (
            self._field(name.encode("utf-8", "surrogatepass"), None)
            + b":"
            + self._field(value, self._of_headers)
            for name, value in record.headers
        )
        return self._headers_separator.join(pairs)

    def _field(self, data: bytes | None, deserialize: Deserializer | None) -> bytes:
        if data is None:
            return self._null
        shown = data if deserialize is None else deserialize(data)
        return for_terminal(shown) if self._escaped else shown


def _in_bytes(decode: Decoder | None) -> Deserializer | None:
    return None if decode is None else lambda data: as_bytes(decode(data))


class JsonFormatter:
    """Formats records as JSON, one object per line; bytes that aren't UTF-8: `{"base64": …}`."""

    def __init__(
        self,
        key: Decoder | None = None,
        value: Decoder | None = None,
        *,
        escaped: bool = False,
    ) -> None:
        r"""Take the decoders; with `escaped`, write terminal control characters as `\u…`."""
        self._key = key or bytes_or_text
        self._value = value or bytes_or_text
        self._escaped = escaped

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the record's line with its line break. Raises `FormatError` if decoding fails."""
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": TIMESTAMP_TYPES.get(record.timestamp_type),
            "leader_epoch": record.leader_epoch,
            "key": None if record.key is None else plain(self._key(record.key)),
            "value": None if record.value is None else plain(self._value(record.value)),
            "headers": [[n, None if v is None else bytes_or_text(v)] for n, v in record.headers],
        }
        text = json.dumps(shown, ensure_ascii=False)
        if self._escaped:
            text = printable(text, limit=None, style=json_escape)
        return text.encode("utf-8", "surrogatepass") + b"\n"
