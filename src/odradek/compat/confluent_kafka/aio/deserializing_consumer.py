"""`AsyncDeserializingConsumer`: an asyncio consumer whose messages contain objects.

In: messages. Out: messages with deserialized keys and values; a deserializer may be a coroutine
function. Must not: lose a message that can't be deserialized: the exception contains it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, Self, TypeVar

from odradek.common.secret import private
from odradek.compat.confluent_kafka.aio.consumer import AIOConsumer
from odradek.compat.confluent_kafka.error import ConsumeError
from odradek.compat.confluent_kafka.flows import awaited
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class AsyncDeserializingConsumer(AIOConsumer, Generic[K, V]):
    """`AIOConsumer` with `key.deserializer` and `value.deserializer` among its settings.

    Creating one needs `await`: `consumer = await AsyncDeserializingConsumer(conf)`.
    """

    @private
    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._converters, rest = converters(conf, "deserializer")
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

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with deserialized key and value, or None after `timeout` seconds.

        Raises `KeyDeserializationError` and `ValueDeserializationError`, and `ConsumeError` in
        place of a message with an error.
        """
        message = await super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        return await awaited(self._converters.read(message))

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages with deserialized keys and values; some may be errors."""
        found = await super().consume(num_messages, timeout)
        read = self._converters.read
        return [m if m.error() is not None else await awaited(read(m)) for m in found]

    async def close(self) -> None:
        """Close the consumer, then the deserializers that it built."""
        await super().close()
        self._converters.close()
