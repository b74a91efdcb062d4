"""`AsyncSerializingProducer`: an asyncio producer whose keys and values are objects.

In: objects. Out: what its serializers make of them, produced; a serializer may be a coroutine
function. Must not: call a serializer for a message that can't be produced anyhow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from inspect import isawaitable
from typing import Any, Generic, Self, TypeVar

from odradek.compat.confluent_kafka.aio.producer import AIOProducer
from odradek.compat.confluent_kafka.error import KeySerializationError, ValueSerializationError
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serialization import MessageField, SerializationContext
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class AsyncSerializingProducer(AIOProducer, Generic[K, V]):
    """An `AIOProducer` with `key.serializer` and `value.serializer` among its settings.

    It is awaited when it is made: `producer = await AsyncSerializingProducer(conf)`.
    """

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._converters, rest = converters(conf, "serializer")
        try:
            super().__init__(rest, **kwargs)
            self._converters.resolve_by(self.cluster_id)
        except BaseException:
            self._converters.close()
            raise

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def _itself(self) -> Self:
        return self

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message]:
        """Send a message; mind that the key comes before the value here.

        Raises `KeySerializationError`, `ValueSerializationError`, and what `AIOProducer.produce`
        raises.
        """
        self._open()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        name: Any = key
        data: Any = value
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._converters.key is not None:
            try:
                name = await _awaited(self._converters.key(key, context))
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._converters.value is not None:
            try:
                data = await _awaited(self._converters.value(value, context))
            except Exception as error:
                raise ValueSerializationError(error) from error
        return await super().produce(
            topic, data, name, partition, timestamp=timestamp, headers=headers
        )

    async def close(self) -> None:
        """Close the producer, then the serializers that it built."""
        await super().close()
        self._converters.close()


async def _awaited(found: Any) -> Any:
    return await found if isawaitable(found) else found
