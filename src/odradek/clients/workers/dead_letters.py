"""Build dead letters: records that couldn't be processed, for a separate topic.

In: a record as it was read, and its error. Out: the record to send, with headers that say why and
from where: those of Kafka Connect's dead-letter queues (KIP-298), whose values are texts; and the
error that names a record if there is no such topic. Must not: send anything.

The topic is looked up before any record is read; otherwise a typing error would show at the first
letter, perhaps weeks later. A letter that is too large loses its largest field first, most often
the value. A header says that the value was removed, because a null value alone would be a
tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import KafkaError, RecordTooLargeError
from odradek.common.errors.kafka import RecordListTooLargeError
from odradek.common.printable import printable
from odradek.common.types import TopicPartition

PREFIX = "__connect.errors."
STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}
"""Connect's names for the stages in which a record's key or value is deserialized."""
WORK_STAGE = "TASK_PUT"
"""Connect's name for the stage in which a record is processed."""
FAILURE_HEADERS = (
    *("topic", "partition", "offset", "connector.name", "task.id", "stage"),
    *("class.name", "exception.class.name", "exception.message"),
)
"""Headers that describe a failure, in order."""
OMITTED_FIELDS_HEADER = "odradek.errors.left.out"
"""Header with the names of the record's fields that a letter lacks because of its size."""
UNREADABLE = "odradek.RecordDeserializationError"
"""Error class of deserializers, named here because its module is in a higher layer."""
MAX_REASON = 1000
"""Maximum number of characters of a reason in a header."""
TOO_LARGE = (RecordTooLargeError, RecordListTooLargeError)
"""Errors of producers and brokers for a record that is too large."""


class Fields(Protocol):
    """The fields of a record that a dead letter may leave out."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class WorkFailedError(KafkaError):
    """Workers stopped because of one record.

    The offsets of this and later records of its partition aren't committed. `partition` and
    `offset` identify the record, `attempts` is the number of attempts; the cause (`__cause__`) is
    the exception of the last attempt.
    """

    def __init__(self, partition: TopicPartition, offset: int, attempts: int, why: str) -> None:
        super().__init__(partition, offset, attempts, why)  # passed again by copies and pickles
        self.partition, self.offset, self.attempts, self.why = partition, offset, attempts, why

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return printable(
            f"{self.partition}: the record at offset {self.offset} was tried {times}: {self.why}"
        )


def said(error: BaseException, *, named: bool = True) -> str:
    """Return the text of a program's error, or its class's name if its `__str__` raises.

    For a record that can't be deserialized, return only the reason: the rest of the error's text
    repeats the position and advises a seek(), which isn't needed.
    """
    name = type(error).__name__
    try:
        words = vars(error)["why"] if called(type(error)) == UNREADABLE else error
        return printable((f"{name}: {words}" if named else str(words))[:MAX_REASON])
    except Exception:
        return name


def failure_headers(
    tp: TopicPartition, offset: int, task: tuple[str, str], stage: str, why: tuple[str, str, str]
) -> list[tuple[str, bytes]]:
    """Return headers with a record's origin and its error.

    `task`: the group and the client; `why`: the class that processed the record, the error's class,
    and its message.
    """
    name, number = task
    worker, error, message = why
    said = printable(message[:MAX_REASON])
    texts = (*tp, offset, name, number, stage, worker, error, said)
    return [
        (PREFIX + name, f"{text}".encode(errors="replace"))
        for name, text in zip(FAILURE_HEADERS, texts, strict=True)
    ]


def called(kind: type) -> str:
    """Return the full name of a class; for this package, the name that programs import."""
    module = f"{kind.__module__}"  # a program may set another type
    return f"{'odradek' if module.startswith('odradek.') else module}.{kind.__qualname__}"


def dead_letter(
    topic: str, record: ConsumerRecord, who: tuple[type, str, str], error: BaseException
) -> dict[str, Any]:
    """Return the arguments of `send`: the record with its timestamp, and headers on its error.

    `who`: the workers' class, the group and the client that processed it.
    """
    worker, group, client = who
    failed = called(type(error))
    why = (called(worker), failed, said(error, named=False))
    own = failed.startswith("odradek.")
    stage = STAGES.get(getattr(error, "field", ""), WORK_STAGE) if own else WORK_STAGE
    headers = failure_headers(record.topic_partition, record.offset, (group, client), stage, why)
    return {
        "topic": topic,
        "value": record.value,
        "key": record.key,
        "headers": [*record.headers, *headers],
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
    }


def smaller(
    letter: dict[str, Any], record: Fields, left_out: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return the letter without its record's largest field, and the names of missing fields.

    Returns None if no field is left. The letter's headers name the original record's offset.
    """
    sizes = {
        "value": len(record.value or b""),
        "headers": sum(len(name) + len(value or b"") for name, value in record.headers),
        "key": len(record.key or b""),
    }
    there = {name: size for name, size in sizes.items() if size and name not in left_out}
    if not there:
        return None
    lacking = (*left_out, max(there, key=there.__getitem__))
    own = () if "headers" in lacking else record.headers
    marked = (OMITTED_FIELDS_HEADER, ",".join(lacking).encode())
    cut: dict[str, Any] = {name: None for name in ("key", "value") if name in lacking}
    headers = [*own, marked, *letter["headers"][-len(FAILURE_HEADERS) :]]
    return {**letter, **cut, "headers": headers}, lacking
