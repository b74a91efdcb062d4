"""`DeserializingConsumer`: a consumer whose messages hold objects.

In: messages. Out: the same with what its deserializers make of key and value; errors are raised.
Must not: lose a message that can't be read: the exception has it.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from odradek.compat.confluent_kafka.consumer import Consumer
from odradek.compat.confluent_kafka.error import (
    ConsumeError,
    KeyDeserializationError,
    ValueDeserializationError,
)
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serialization import MessageField, SerializationContext
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class DeserializingConsumer(Consumer, Generic[K, V]):
    """A `Consumer` with `key.deserializer` and `value.deserializer` among its settings.

    Each is called with bytes or None and a `SerializationContext` and gives an object; with
    `.builder` at the end of its name it is a `DeserializerBuilder`, whose deserializer `close()`
    closes.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        self._converters, rest = converters(conf, "deserializer")
        try:
            super().__init__(rest)
            self._converters.resolve_by(self.cluster_id)
        except BaseException:
            self._converters.close()
            raise

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, with its key and value read; None after `timeout` seconds.

        Raises `KeyDeserializationError`, `ValueDeserializationError`, and `ConsumeError` for what
        `Consumer.poll` gives as a message with an error.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        return self._read(message)

    def _read(self, message: Message) -> Message:
        topic = message.topic() or ""
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._converters.key is not None:
            try:
                key = self._converters.key(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        context.field = MessageField.VALUE
        if self._converters.value is not None:
            try:
                value = self._converters.value(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> NoReturn:
        """Not there, as with confluent-kafka: call `poll()`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the consumer, then the deserializers that it built."""
        super().close()
        self._converters.close()
