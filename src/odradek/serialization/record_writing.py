"""Apply serializers to records on their way from a program to its producer.

In: objects. Out: `send` called with their bytes. None remains None: a record without a key, or a
tombstone. Must not: slow down producers without serializers: `send` is only replaced if needed.

The replacement has a weak reference to its producer, so no cycle keeps the producer alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import ref

from odradek.clients.calls.record_sending import DeliveryCallback, RecordSending, alive
from odradek.clients.producer.record_arguments import NO_HEADERS, HeadersInput
from odradek.common.arguments import record_bytes
from odradek.common.errors import ArgumentError, KafkaError
from odradek.record.list_send import RecordLists
from odradek.runtime.hosts.delivery_future import DeliveryFuture, ManyDeliveryFuture
from odradek.runtime.hosts.in_thread import at_hand
from odradek.runtime.hosts.record_future import ManyFuture
from odradek.serialization.context import NO_WAITING, MessageField, SerializationContext
from odradek.serialization.errors import SerializationError
from odradek.serialization.record_reading import converter, not_awaited

STRETCH = 256
"""Number of records that are serialized before control returns to the event loop."""

Written = tuple[bytes | None, bytes | None, HeadersInput]


class RecordWriting:
    """Key and value serializers of a producer."""

    def __init__(self, key: Any, value: Any) -> None:
        self._key = converter("key_serializer", key)
        self._value = converter("value_serializer", value)
        self._given = {MessageField.KEY: key, MessageField.VALUE: value}

    def __call__(self, topic: str, key: Any, value: Any, headers: HeadersInput) -> Written:
        """Return the bytes of key and value, and the headers with those that serializers added.

        Raises `SerializationError` with the topic, or the registry's error.
        """
        headers = gone_through(headers)
        there = headers.items() if isinstance(headers, Mapping) else headers or ()
        listed: Any = list(there) if isinstance(there, Iterable) else []  # `send` rejects others
        before = len(listed)
        context = SerializationContext(topic, MessageField.KEY, listed)
        if self._key is not None and key is not None:
            key = self._written(self._key, key, context)
        context.field = MessageField.VALUE
        if self._value is not None and value is not None:
            value = self._written(self._value, value, context)
        return key, value, listed if len(listed) > before else headers

    def _written(
        self, function: Callable[[Any, Any], Any], given: Any, context: SerializationContext
    ) -> Any:
        try:
            written = not_awaited(function(given, context))
        except KafkaError as error:
            if type(error) is not SerializationError:  # e.g. SchemaRegistryError: add the topic
                error.add_note(
                    f"while serializing the {context.field} of a record for topic {context.topic}"
                )
                raise
            raise _unwritten(context, str(error)) from error
        # A serializer of the program may raise any exception.
        except Exception as error:
            raise _unwritten(context, f"{type(error).__name__}: {error}") from error
        if type(written) is not bytes:
            self._check(written, context)
        return written

    def _check(self, written: Any, context: SerializationContext) -> None:
        """Raise `SerializationError` if a result can't be sent."""
        given = self._given[context.field]
        name = getattr(given, "__name__", type(given).__name__)
        try:
            record_bytes(f"the result of {context.field}_serializer ({name})", written)
        except ArgumentError as error:
            raise _unwritten(context, str(error)) from None

    def in_loop(self, topic: str, key: Any, value: Any, headers: HeadersInput) -> Written:
        """Serialize in an event loop; raises `SchemaNotAtHandError` instead of blocking."""
        token = NO_WAITING.set(True)
        try:
            return self(topic, key, value, headers)
        finally:
            NO_WAITING.reset(token)


def gone_through(headers: Any) -> Any:
    """Return headers that can be read repeatedly: by serializers, and then by `send`."""
    return list(headers) if isinstance(headers, Iterator) else headers


def _unwritten(context: SerializationContext, why: str) -> SerializationError:
    return SerializationError(
        f"the {context.field} of a record for topic {context.topic} can't be serialized: {why}"
    )


def serialized_send(producer: RecordSending[Any], key: Any, value: Any) -> Callable[..., Any]:
    """Return a `send` that serializes first; it holds no strong reference to the producer."""
    return partial(_send, ref(producer), RecordWriting(key, value))


def _send(
    of: Any,
    writing: RecordWriting,
    topic: str,
    value: Any = None,
    key: Any = None,
    headers: HeadersInput = NO_HEADERS,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    on_delivery: DeliveryCallback | None = None,
    **more: Any,
) -> Any:
    producer = alive(of)
    key, value, headers = writing(topic, key, value, headers)
    # A subclass may override `send`, with additional arguments.
    return type(producer).send(
        producer, topic, value, key, headers, partition, timestamp_ms, on_delivery, **more
    )


def serialized_send_many(producer: Any, key: Any, value: Any) -> Callable[..., Any]:
    """Return a `send_many` that serializes all records before it sends the first."""
    return partial(_send_many, ref(producer), RecordWriting(key, value))


def _send_many(
    of: Any, writing: RecordWriting, topic: str, *lists: Any, **named: Any
) -> ManyFuture:
    producer, records = alive(of), _lists(*lists, **named)
    written = [writing(topic, *record) for record in records.objects()]
    future: ManyFuture = type(producer).send_many(producer, topic, **records.written(written))
    return future


def _lists(
    values: Any,
    keys: Any = None,
    headers: Any = None,
    partitions: Any = None,
    timestamps_ms: Any = None,
) -> RecordLists:
    return RecordLists.given(
        values=values,
        keys=keys,
        headers=headers,
        partitions=partitions,
        timestamps_ms=timestamps_ms,
    )


def serialized_put(producer: RecordSending[Any], key: Any, value: Any) -> Callable[..., Any]:
    """Return an async version of `send` with serializers; each call must be awaited."""
    return partial(_put, ref(producer), RecordWriting(key, value))


async def _put(
    of: Any,
    writing: RecordWriting,
    topic: str,
    value: Any = None,
    key: Any = None,
    headers: HeadersInput = NO_HEADERS,
    partition: int | None = None,
    timestamp_ms: int | None = None,
) -> Any:
    headers = gone_through(headers)

    async def written() -> Written:
        return writing.in_loop(topic, key, value, headers)

    producer = alive(of)
    key, value, headers = await at_hand(written)
    found = RecordSending.send(producer, topic, value, key, headers, partition, timestamp_ms)
    return found if type(found) is DeliveryFuture else await found


def serialized_put_many(producer: Any, key: Any, value: Any) -> Callable[..., Any]:
    """Return a `send_many` for an event loop, which always has to be awaited."""
    return partial(_put_many, ref(producer), RecordWriting(key, value))


async def _put_many(
    of: Any, writing: RecordWriting, topic: str, *lists: Any, **named: Any
) -> ManyDeliveryFuture:
    producer, records = alive(of), _lists(*lists, **named)
    left = deque((key, item, gone_through(headers)) for key, item, headers in records.objects())
    written = list[Written]()

    async def all_written() -> None:
        while left:  # `at_hand` may repeat this, so only serialized items are removed
            written.append(writing.in_loop(topic, *left[0]))
            left.popleft()
            if not len(left) % STRETCH:
                await producer._loop_host.breathe()  # noqa: SLF001  # as its own calls do

    await at_hand(all_written)
    sent = type(producer).send_many(producer, topic, **records.written(written))
    future: ManyDeliveryFuture = await sent
    return future
