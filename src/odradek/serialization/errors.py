"""Errors of serializers, deserializers and schema registries.

In: nothing. Out: exception classes whose messages say what happened, where, and what to do. Must
not: hold a record's bytes or a credential.
"""

from __future__ import annotations

import copy
from typing import Self

from odradek.common.errors import ConfigurationError, ExplainedError, KafkaError
from odradek.common.printable import printable, sentence
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
    blames_record = False
    """Whether the record is the cause: its writer schema is unusable, or that schema or one that it
    references is missing, which each server of the registry has confirmed. Otherwise other records
    fail, too, and this record may be readable later."""

    def coded(self, status: int, error_code: int | None) -> Self:
        """Set `status` and `error_code` from the response, and return this error."""
        self.status, self.error_code, self.blames_record = status, error_code, False
        return self

    def blameless(self) -> Self:
        """Return this error with `blames_record` false, for a schema that isn't the record's own.

        Returns a copy if needed: other threads and records may get this error for the same schema.
        """
        if not self.blames_record:
            return self
        found = copy.copy(self)
        found.blames_record = False
        return found


class RegistryUnreachableError(SchemaRegistryError):
    """None of the registry's URLs answered in time."""

    retriable = True


class RegistryAuthenticationError(SchemaRegistryError):
    """The registry rejected the credentials (401), or the permission is missing (403).

    Also raised if the function `bearer.auth.token` fails; its error is the `__cause__`.
    """


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such subject, version or schema (404)."""

    def confirmed(self, everywhere: bool) -> Self:
        """Return this error; `blames_record` is true if each server confirmed it (`everywhere`)."""
        self.blames_record = everywhere
        return self


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema violates the compatibility level of its subject (409)."""


class InvalidSchemaError(SchemaRegistryError):
    """The schema isn't valid or can't be used (42201, or rejected by the local library)."""

    blames_record = True


class UnusableSettingError(ConfigurationError):
    """A file in a registry client's settings, such as a certificate, can't be used now."""

    blames_record = False


def blames_record(error: BaseException) -> bool:
    """Return whether an error of a deserializer is caused by the record.

    Errors of the program's own functions always count as caused by the record.
    """
    ours = isinstance(error, KafkaError)
    return not ours or getattr(error, "blames_record", True) is not False


class RecordDeserializationError(DeserializationError):
    """A record can't be deserialized; nothing is lost, and the position is still at this record.

    The next call raises the same error. To skip the record, call
    `consumer.seek(error.partition, error.next_offset)`.
    """

    def __init__(self, partition: TopicPartition, offset: int, field: str, why: str) -> None:
        super().__init__(partition, offset, field, why)  # copy and pickle need all arguments
        self.partition, self.offset, self.field, self.why = partition, offset, field, why
        self.next_offset = offset + 1

    def __str__(self) -> str:
        return printable(
            f"{self.partition}: the {self.field} of the record at offset {self.offset} can't be "
            f"deserialized: {sentence(self.why)} To skip the record, seek() to "
            f"{self.next_offset}."
        )
