"""Read and write trace contexts in records' headers: W3C's, or those of the global propagator.

In: headers of a record that is sent or was read, rows of columns or of Arrow batches. Out: headers
with a context added; the contexts that records were sent in, as links. Must not: change the
arguments, replace a context that the program itself has added, or look at more than `MOST_LINKS`
records of a batch. This module imports OpenTelemetry: it is only imported if the program uses
traces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanContext

from odradek.clients.producer.record_arguments import CarriedValue
from odradek.common.arguments import Headers

logger = logging.getLogger("odradek")

MOST_LINKS = 128
"""Maximum number of links of a span, the default limit of OpenTelemetry's SDK."""
MOST_BYTES = 8192
"""Maximum size of a header that may contain a context: the limit of a W3C baggage."""
NO_CONTEXT = Context()
OFFSET = "messaging.kafka.offset"
PARTITION = "messaging.destination.partition.id"
TOPIC = "messaging.destination.name"


class _Forgiven:
    """Context manager that logs errors of OpenTelemetry's plug-ins, so that no record is lost."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        logger.warning(
            "OpenTelemetry raised an error while a span or its context was handled", exc_info=error
        )
        return True


FORGIVEN = _Forgiven()


class ReadRecord(NamedTuple):
    """The fields of a consumed record that a trace contains."""

    topic: str | None
    partition: int | None
    offset: int | None
    headers: Iterable[tuple[str, bytes | None]] | None


class _HeaderGetter(Getter[Mapping[str, str]]):
    """Accessor with which propagators read headers."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        found = carrier.get(key.lower())
        return None if found is None else [found]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_GETTER = _HeaderGetter()


def injected(headers: Headers, context: Context) -> Headers:
    """Return the headers with this context appended; existing names are left unchanged.

    The producer leaves the context out if the record would become too large.
    """
    carrier: dict[str, str] = {}
    with FORGIVEN:  # after an error, send the context written so far
        propagate.inject(carrier, context)
    if headers:
        for name, _ in headers:
            carrier.pop(name.lower(), None)
    texts = ((name, text.encode("utf-8", "replace")) for name, text in carrier.items())
    added = ((name, CarriedValue(text)) for name, text in texts)
    return (*headers, *added)


def extracted(headers: Iterable[tuple[str, bytes | None]] | None, context: Context) -> Context:
    """Return `context` extended by the context in a record's headers, if they have a valid one.

    Of several headers with one name the last counts, as in OpenTelemetry's instrumentation of
    Java's clients.
    """
    if not headers:
        return context
    carrier = {
        name.lower(): value.decode("utf-8", "replace")
        for name, value in headers
        if value is not None and len(value) <= MOST_BYTES
    }
    with FORGIVEN:  # headers of other programs may be invalid
        return propagate.extract(carrier, context, _GETTER)
    return context


def sent_in(headers: Iterable[tuple[str, bytes | None]] | None) -> SpanContext | None:
    """Return the context that a record was created in, if its headers contain one."""
    return valid(extracted(headers, NO_CONTEXT)) if headers else None


def valid(context: Context) -> SpanContext | None:
    """Return the span context of a context, if it is valid."""
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def linked(records: Iterable[ReadRecord], known: Mapping[str, Any]) -> list[Link]:
    """Return a link to each context in the records' headers.

    Its attributes are the place of the first record with this context, except those in `known`.
    """
    found: dict[tuple[int, int], Link] = {}
    for record in islice(records, MOST_LINKS):
        context = sent_in(record.headers)
        if context is not None and (key := (context.trace_id, context.span_id)) not in found:
            places: dict[str, Any] = {TOPIC: record.topic, OFFSET: record.offset}
            if record.partition is not None:
                places[PARTITION] = str(record.partition)
            told = {k: v for k, v in places.items() if v is not None and k not in known}
            found[key] = Link(context, told or None)
    return list(found.values())


def all_of(data: Any, name: str) -> list[Any]:
    """Return the distinct values of the column `name` of a record batch or table.

    Returns [None] if the values aren't strings or numbers, or if several columns have the name.
    """
    if data.schema.names.count(name) != 1:
        return [None]
    try:
        found: list[Any] = data.column(name).unique().to_pylist()
    except NotImplementedError:  # raised for columns of lists and structs
        return [None]
    return found if all(isinstance(one, str | int) for one in found) else [None]


def arrow_records(
    data: Any, headers: str | None, places: Sequence[str] = ()
) -> Iterator[ReadRecord]:
    """Return the first rows of a record batch or table as records.

    `headers` is the name of a column; `places` are the names of the columns of topic, partition and
    offset. Returns no rows if the columns are invalid, or if the headers have another type.
    """
    names = data.schema.names
    if names.count(headers) != 1:
        return
    wanted = [name for name in places if names.count(name) == 1]
    rows = data.slice(0, MOST_LINKS).select([headers, *wanted])
    try:
        rows.validate(full=True)
    except (
        ValueError,
        IndexError,
    ):  # invalid data: Arrow would read beyond its end
        return
    for row in rows.to_pylist():
        found = row[headers]
        if isinstance(found, list):
            topic, partition, offset = map(row.get, ("topic", "partition", "offset"))
            yield ReadRecord(topic, partition, offset, [*filter(None, map(_pair, found))])


def _pair(given: Any) -> tuple[str, bytes | None] | None:
    """Return a name and value for an entry of a headers column; None for an invalid entry."""
    pair: Any = (given.get("key"), given.get("value")) if isinstance(given, dict) else given
    if not isinstance(pair, tuple) or len(pair) != 2:
        return None
    name, value = pair
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    value = value.encode() if isinstance(value, str) else value
    usual = isinstance(name, str) and (value is None or isinstance(value, bytes))
    return (name, value) if usual else None
