"""Exceptions of `confluent_kafka.error`: of all clients, and of those with serializers."""

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
    """Base: `exception` is the original exception, `kafka_message` the message, or None."""

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
        """Code of the error."""
        return self._error.code()

    @property
    def name(self) -> str:
        """Name of the error's code."""
        return self._error.name()

    @property
    def _error(self) -> KafkaError:
        found: KafkaError = self.args[0]
        return found


class ConsumeError(_ClientError):
    """The consumer reported an error, or a key or value can't be deserialized."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """A key can't be deserialized; `kafka_message` is the message."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """A value can't be deserialized; `kafka_message` is the message."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ProduceError(_ClientError):
    """A message can't be produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """A key can't be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """A value can't be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
