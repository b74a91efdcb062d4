"""`AsyncSerializingProducer`: an asyncio producer whose keys and values are objects.

In: objects. Out: serialized messages, produced; a serializer may be a coroutine function. Must not:
call a serializer for a message that can't be produced anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, Self, TypeVar

from odradek.common.secret import private
from odradek.compat.confluent_kafka.aio.producer import AIOProducer
from odradek.compat.confluent_kafka.flows import awaited
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class AsyncSerializingProducer(AIOProducer, Generic[K, V]):
    """`AIOProducer` with `key.serializer` and `value.serializer` among its settings.

    Creating one needs `await`: `producer = await AsyncSerializingProducer(conf)`.
    """

    @private
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
        """Serialize a key and a value, and send them as a message.

        The order of the arguments differs from `AIOProducer.produce`: the key comes before the
        value. Raises `KeySerializationError`, `ValueSerializationError`, and what
        `AIOProducer.produce` raises.
        """
        self._open()
        name, data = await awaited(self._converters.written(topic, key, value, headers))
        return await super().produce(
            topic, data, name, partition, timestamp=timestamp, headers=headers
        )

    async def close(self) -> None:
        """Close the producer, then the serializers that it built."""
        await super().close()
        self._converters.close()
