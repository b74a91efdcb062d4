"""`DeserializingConsumer`: a consumer whose messages hold objects.

In: messages. Out: the same with what its deserializers make of key and value; errors are raised.
Must not: lose a message that can't be read: the exception has it.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from odradek.compat.confluent_kafka.consumer import Consumer
from odradek.compat.confluent_kafka.error import ConsumeError
from odradek.compat.confluent_kafka.flows import carried_out
from odradek.compat.confluent_kafka.message import Message
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
        return carried_out(self._converters.read(message))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> NoReturn:
        """Not there, as with confluent-kafka: call `poll()`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the consumer, then the deserializers that it built."""
        super().close()
        self._converters.close()
