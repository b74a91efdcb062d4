"""Apply deserializers to a consumer's records before they are returned to the caller.

In: records with bytes, before the position moves past them. Out: the records with objects, up to
the first one that can't be deserialized; an error if that is the first of all. Must not: lose a
record: the next call reads the records again that weren't returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.types import TopicPartition
from odradek.serialization.context import (
    NO_WAITING,
    Deserializer,
    MessageField,
    SerializationContext,
)
from odradek.serialization.errors import RecordDeserializationError, blames_record

_KEY, _VALUE, _HEADERS = 5, 6, 7
"""Indexes of key, value and headers in a record."""


def converter(option: str, given: Any) -> Callable[[Any, Any], Any] | None:
    """Return a serializer or deserializer as a function of an object and a context.

    The context is only passed if the function requires a second argument, or has an optional one
    called ctx or context. Raises `ConfigurationError`, also for an object of the opposite kind, or
    for a class instead of an instance.
    """
    if given is None:
        return None
    if not callable(given):
        raise ConfigurationError(f"{option} must be a function, not {type(given).__name__}")
    if isinstance(given, type) and any("__call__" in vars(one) for one in given.__mro__):
        raise ConfigurationError(f"{option} is the class {given.__name__}: pass an instance")
    _check_kind(option, type(given))
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__):
        raise ConfigurationError(
            f"{option} is a coroutine function: pass a plain function. Odradek's own serializers "
            "never block an event loop"
        )
    if _takes_context(given):
        takes_both: Callable[[Any, Any], Any] = given
        return takes_both
    return lambda one, _: given(one)


def _check_kind(option: str, given: type) -> None:
    """Raise `ConfigurationError` for a deserializer in place of a serializer, or vice versa."""
    wanted = "Deserializer" if option.endswith("_deserializer") else "Serializer"
    for one in given.__mro__:
        kind = "Deserializer" if one.__name__.endswith("Deserializer") else "Serializer"
        known = one.__module__.startswith(("odradek.", "confluent_kafka."))
        if known and one.__name__.endswith(kind) and kind != wanted:
            raise ConfigurationError(
                f"{option} is an instance of {given.__name__}: pass a {wanted.lower()}"
            )


def not_awaited(made: Any) -> Any:
    """Return a function's result. Raises `TypeError` if it is a coroutine."""
    if type(made) is CoroutineType:
        made.close()
        raise TypeError("the function returned a coroutine, which isn't awaited here")
    return made


def _takes_context(given: Any) -> bool:
    try:
        parameters = list(inspect.signature(given).parameters.values())
    except (TypeError, ValueError):
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = [one for one in parameters if one.kind in by_place][1:2]
    return any(one.default is one.empty or one.name in ("ctx", "context") for one in second)


class RecordReading:
    """Key and value deserializers of a consumer."""

    def __init__(self, key: Any, value: Any, *, in_loop: bool = False) -> None:
        """Take the deserializers of keys and values, or None.

        With `in_loop`, the caller is an event loop, which can't wait for a registry: see
        `SchemaNotAtHandError`.
        """
        self._key: Deserializer | None = converter("key_deserializer", key)
        self._value: Deserializer | None = converter("value_deserializer", value)
        self._in_loop = in_loop
        self._contexts: dict[str, tuple[SerializationContext, SerializationContext]] = {}

    def __call__(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records before the first unreadable one; raise if there are none before it.

        Raises `RecordDeserializationError`, or the error of a registry that isn't caused by the
        record.
        """
        token = NO_WAITING.set(self._in_loop)
        made: list[ConsumerRecord] = []
        try:
            for record in records:
                made.append(self._read(record))  # noqa: PERF401 - records that were read before an error are used
        except KafkaError:
            if not made:
                raise
        finally:
            NO_WAITING.reset(token)
        return made

    def _read(self, record: ConsumerRecord) -> ConsumerRecord:
        items: list[Any] = list(tuple.__iter__(record))
        contexts = self._contexts_of(record)
        for at, context, function in (
            (_KEY, contexts[0], self._key),
            (_VALUE, contexts[1], self._value),
        ):
            if function is None or items[at] is None:
                continue
            try:
                items[at] = not_awaited(function(items[at], context))
            # A deserializer of the program may raise any exception.
            except Exception as error:
                if not blames_record(error):
                    raise  # not the record's fault: a later call may succeed
                raise RecordDeserializationError(
                    TopicPartition(record.topic, record.partition),
                    record.offset,
                    str(context.field),
                    f"{type(error).__name__}: {error}",
                ) from error
        return tuple.__new__(type(record), items)

    def _contexts_of(
        self, record: ConsumerRecord
    ) -> tuple[SerializationContext, SerializationContext]:
        """Return the contexts of key and value; without headers they are cached by topic."""
        topic, headers = record.topic, record.headers
        found = None if headers else self._contexts.get(topic)
        if found is None:
            listed = list(headers) or None
            found = (
                SerializationContext(topic, MessageField.KEY, listed),
                SerializationContext(topic, MessageField.VALUE, listed),
            )
            if listed is None:
                self._contexts[topic] = found
        return found
