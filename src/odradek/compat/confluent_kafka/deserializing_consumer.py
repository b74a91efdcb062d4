"""`DeserializingConsumer`: a consumer whose messages contain objects.

In: messages. Out: messages with deserialized keys and values; errors are raised. Must not: lose a
message that can't be deserialized: the exception contains it.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from odradek.common.secret import private
from odradek.compat.confluent_kafka.consumer import Consumer
from odradek.compat.confluent_kafka.error import ConsumeError
from odradek.compat.confluent_kafka.flows import carried_out
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class DeserializingConsumer(Consumer, Generic[K, V]):
    """`Consumer` with `key.deserializer` and `value.deserializer` among its settings.

    A deserializer takes bytes or None and a `SerializationContext` and returns an object. A setting
    that ends in `.builder` is a `DeserializerBuilder`, whose deserializer `close()` closes.
    """

    @private
    def __init__(self, conf: dict[str, Any]) -> None:
        self._converters, rest = converters(conf, "deserializer")
        try:
            super().__init__(rest)
            self._converters.resolve_by(self.cluster_id)
        except BaseException:
            self._converters.close()
            raise

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with deserialized key and value, or None after `timeout` seconds.

        Raises `KeyDeserializationError` and `ValueDeserializationError`, and `ConsumeError` in
        place of a message with an error.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        return carried_out(self._converters.read(message))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> NoReturn:
        """Raise `NotImplementedError`, as confluent-kafka does: call `poll()`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the consumer, then the deserializers that it built."""
        super().close()
        self._converters.close()
