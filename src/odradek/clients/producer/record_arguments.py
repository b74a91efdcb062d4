"""Check the arguments of `send` and `send_arrow`.

In: a record's fields, names of columns. Out: valid values, or an error that names the field.
`send` only checks values that wouldn't fail by themselves, and explains an error afterwards, so a
valid record isn't checked twice. Must not: append anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.common import arguments
from odradek.common.arguments import (
    INT64_MAX,
    Headers,
    names,
    record_bytes,
    record_headers,
    topic_name,
)
from odradek.common.errors import ArgumentError, KafkaError

NO_HEADERS: Headers = ()
HeadersInput = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None
NO_TIME = -1
"""Timestamp of a record that has none."""


class CarriedValue(bytes):
    """A header value that the program didn't set: a trace's context.

    It is left out of a record without space for it. It is recognized by its type, even after
    serializers and a program's own `send` have passed it on.
    """

    __slots__ = ()


def without_carried(headers: Headers) -> Headers:
    """Return the headers that the program has set."""
    return tuple(header for header in headers if type(header[1]) is not CarriedValue)


def checked_record(value: Any, key: Any, headers: Any, timestamp_ms: Any) -> Headers:
    """Check the types that the builder doesn't check; return the headers as a tuple."""
    if value is not None and type(value) is not bytes:
        record_bytes("value", value)
    if key is not None and type(key) is not bytes:
        record_bytes("key", key)
    if type(timestamp_ms) is not int or not NO_TIME <= timestamp_ms <= INT64_MAX:
        arguments.timestamp("timestamp_ms", timestamp_ms, NO_TIME)
    return NO_HEADERS if headers is NO_HEADERS else record_headers(headers)


def explained(
    error: Exception, topic: Any, value: Any, key: Any, headers: Any, timestamp_ms: Any
) -> Exception:
    """Return an error that names a record's wrong argument."""
    try:
        topic_name("topic", topic)
        checked_record(value, key, headers, timestamp_ms)
    except KafkaError as better:
        return better.with_traceback(None)
    return ArgumentError(f"the record can't be sent: {error}")


def column_names(**given: Any) -> list[str | None]:
    """Check the names of columns, and return them; None leaves a column out."""
    for name, column in given.items():
        if column is not None and not isinstance(column, str):
            raise arguments.refusal(name, "the name of a column (str) or None", column)
    return [None if column is None else names(name, column)[0] for name, column in given.items()]
