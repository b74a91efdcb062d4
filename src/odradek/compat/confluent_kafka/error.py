"""Exceptions of the serializing clients, and the two of all clients, as `confluent_kafka.error`.

In: a `KafkaError`, what a serializer raised, the message. Out: exceptions that carry them. Must
not: be raised by the clients without serializers.
"""

from __future__ import annotations

from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serialization import SerializationError

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _ClientError(KafkaException):
    """Base: `exception` is what was raised, `kafka_message` the message, or None."""

    def __init__(
        self,
        kafka_error: KafkaError,
        exception: Exception | None = None,
        kafka_message: Message | None = None,
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The error's code."""
        return self._error.code()

    @property
    def name(self) -> str:
        """The name of the error's code."""
        return self._error.name()

    @property
    def _error(self) -> KafkaError:
        found: KafkaError = self.args[0]
        return found


class ConsumeError(_ClientError):
    """A message can't be handed out: the consumer's error, or its key or value can't be read."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """A key can't be read; the message is handed along."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """A value can't be read; the message is handed along."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ProduceError(_ClientError):
    """A message can't be sent."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """A key can't be written as bytes."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """A value can't be written as bytes."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
