"""Define the errors of serializers, deserializers and schema registries.

In: nothing. Out: exception classes whose messages say what happened, where, and what to do. Must
not: hold a record's bytes or a credential.
"""

from __future__ import annotations

from typing import Self

from odradek.common.errors import ExplainedError, KafkaError
from odradek.common.printable import printable
from odradek.common.types import TopicPartition


class SerializationError(KafkaError):
    """An object can't be serialized: it doesn't match its schema or has the wrong type."""


class DeserializationError(KafkaError):
    """Bytes can't be deserialized: they have a different format, or don't match their schema."""


class SchemaRegistryError(ExplainedError):
    """A schema registry rejected a request, or can't be reached."""

    status: int | None = None
    """The HTTP status; None without a response."""
    error_code: int | None = None
    """The registry's own error code, for example 40403."""
    blames_record = True
    """Whether the cause may be this record's schema; False if the registry can't be used at all, so
    that no record can be read."""

    def coded(self, status: int, error_code: int | None) -> Self:
        """Set `status` and `error_code` from the response, and return this error."""
        self.status, self.error_code = status, error_code
        return self


class RegistryUnreachableError(SchemaRegistryError):
    """None of the registry's URLs answered in time."""

    retriable = True
    blames_record = False


class RegistryAuthenticationError(SchemaRegistryError):
    """The registry rejected the credentials (401) or the permission is missing (403)."""

    blames_record = False


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such subject, version or schema (404)."""


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema violates the compatibility level of its subject (409)."""


class InvalidSchemaError(SchemaRegistryError):
    """The schema isn't valid or can't be used (422, or rejected by the local library)."""


class RecordDeserializationError(DeserializationError):
    """A record can't be deserialized; nothing is lost, and the position is still at this record.

    The next call raises the same error. To skip the record, call
    `consumer.seek(error.partition, error.next_offset)`.
    """

    def __init__(self, partition: TopicPartition, offset: int, field: str, why: str) -> None:
        super().__init__(partition, offset, field, why)  # as given, for copies and pickles
        self.partition, self.offset, self.field, self.why = partition, offset, field, why
        self.next_offset = offset + 1

    def __str__(self) -> str:
        return printable(
            f"{self.partition}: the {self.field} of the record at offset {self.offset} can't be "
            f"deserialized: {self.why}. To skip the record, seek() to {self.next_offset}."
        )
