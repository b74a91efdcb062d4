"""Strategies for the subject under which a schema is registered.

In: a context and the name of a record. Out: a subject. The functions have the same parameters as
confluent-kafka's. Must not: send requests to a registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from odradek.common.errors import ConfigurationError
from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import SerializationError

SubjectNameStrategy = Callable[[SerializationContext | None, str | None], str | None]


def topic_subject_name_strategy(
    context: SerializationContext | None, record_name: str | None = None
) -> str:
    """Return the subject `<topic>-key` or `<topic>-value`.

    Each topic then has one schema for its keys and one for its values.
    """
    return f"{_context(context).topic}-{_context(context).field}"


def record_subject_name_strategy(
    context: SerializationContext | None, record_name: str | None
) -> str:
    """Return the record's full name as the subject: a record has the same schema in all topics."""
    return _named(record_name)


def topic_record_subject_name_strategy(
    context: SerializationContext | None, record_name: str | None
) -> str:
    """Return the subject `<topic>-<record's full name>`.

    A topic can then have several types of records, each with its own schema per topic.
    """
    return f"{_context(context).topic}-{_named(record_name)}"


STRATEGIES: dict[str, SubjectNameStrategy] = {
    "TOPIC": topic_subject_name_strategy,
    "RECORD": record_subject_name_strategy,
    "TOPIC_RECORD": topic_record_subject_name_strategy,
    "TopicNameStrategy": topic_subject_name_strategy,
    "RecordNameStrategy": record_subject_name_strategy,
    "TopicRecordNameStrategy": topic_record_subject_name_strategy,
}


def strategy(option: str, given: object) -> SubjectNameStrategy:
    """Return the given function, or the strategy with this name in confluent-kafka or Java.

    Names are looked up in a table, never imported (R-IN-2).
    """
    if isinstance(given, str):
        found = STRATEGIES.get(given.rpartition(".")[2])
        if found is not None:
            return found
    elif callable(given):
        return given
    raise ConfigurationError(
        f"{option} must be TOPIC, RECORD, TOPIC_RECORD or a function, not {given!r}"
    )


def _context(context: SerializationContext | None) -> SerializationContext:
    # confluent-kafka's contexts have both attributes, too.
    if not all(isinstance(getattr(context, name, None), str) for name in ("topic", "field")):
        lacks = " without topic or field" if hasattr(context, "topic") else ""
        raise SerializationError(
            "the subject name needs a SerializationContext with the topic, not "
            f"{type(context).__name__}{lacks}"
        )
    return cast("SerializationContext", context)


def _named(record_name: str | None) -> str:
    if record_name is not None and not isinstance(record_name, str):
        raise SerializationError(f"record_name must be a string, not {type(record_name).__name__}")
    if not record_name:
        raise SerializationError(
            "this schema has no record name for its subject: use subject.name.strategy=TOPIC"
        )
    return record_name
