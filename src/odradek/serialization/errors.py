"""What goes wrong between objects and bytes, and with a registry.

In: nothing. Out: exception classes, which say what happened, where and what to do. Must not: hold
a record's bytes, or a credential.
"""

from __future__ import annotations

from typing import Self

from odradek.common.errors import ExplainedError, KafkaError
from odradek.common.printable import printable
from odradek.common.types import TopicPartition


class SerializationError(KafkaError):
    """An object can't be written as bytes: it doesn't fit its schema, or has another type."""


class DeserializationError(KafkaError):
    """Bytes can't be read: they aren't of this format, or not of the schema that they name."""


class SchemaRegistryError(ExplainedError):
    """A schema registry refused a call, or can't be asked."""

    status: int | None = None
    """Of HTTP; None where there was no answer."""
    error_code: int | None = None
    """The registry's own, for example 40403."""
    blames_record = True
    """Whether another record might be read: not where the registry answers nobody."""

    def coded(self, status: int, error_code: int | None) -> Self:
        """The same with the codes of the answer."""
        self.status, self.error_code = status, error_code
        return self


class RegistryUnreachableError(SchemaRegistryError):
    """None of the registry's URLs gave an answer in time."""

    retriable = True
    blames_record = False


class RegistryAuthenticationError(SchemaRegistryError):
    """The registry doesn't know who asks, or that one has no right to do this (401, 403)."""

    blames_record = False


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such subject, version or schema (404)."""


class IncompatibleSchemaError(SchemaRegistryError):
    """The registry refuses a schema that its subject's compatibility level forbids (409)."""


class InvalidSchemaError(SchemaRegistryError):
    """A text isn't a schema that can be used (422, or this machine's own library says so)."""


class RecordDeserializationError(DeserializationError):
    """A record can't be made an object of; nothing is lost, and its position isn't passed.

    `consumer.seek(error.partition, error.next_offset)` goes on after it; a call without that meets
    it again.
    """

    def __init__(self, partition: TopicPartition, offset: int, field: str, why: str) -> None:
        super().__init__(partition, offset, field, why)  # as given, for copies and pickles
        self.partition, self.offset, self.field, self.why = partition, offset, field, why
        self.next_offset = offset + 1

    def __str__(self) -> str:
        return printable(
            f"{self.partition}: the {self.field} of the record at offset {self.offset} can't be "
            f"read: {self.why}. seek() to {self.next_offset} goes on after it."
        )
