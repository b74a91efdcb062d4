"""From this package's records to aiokafka's.

In: records as bytes. Out: `ConsumerRecord` with what the deserializers made of them. Must not:
know the consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from odradek.clients.consumer.records import ConsumerRecord as Record
from odradek.compat.aiokafka.structs import ConsumerRecord

Deserializer: TypeAlias = Callable[[bytes], Any]


class Deserializers:
    """The two functions of one consumer; None leaves bytes as they are."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key, self._value = key, value

    def record(self, record: Record) -> ConsumerRecord[Any, Any]:
        """One record; raises what a deserializer raises."""
        topic, partition, offset, at, kind, key, value, headers, _ = record
        return ConsumerRecord(
            topic,
            partition,
            offset,
            at,
            kind,
            key if self._key is None else self._key(key),  # type: ignore[arg-type]
            value if self._value is None else self._value(value),  # type: ignore[arg-type]
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            tuple(headers),
        )
