"""`SerializingProducer`: a producer whose keys and values are objects.

In: objects. Out: serialized messages, produced. Must not: call a serializer for a message that
can't be produced anyway.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from odradek.common.secret import private
from odradek.compat.confluent_kafka.flows import carried_out
from odradek.compat.confluent_kafka.producer import Producer
from odradek.compat.confluent_kafka.sent_messages import DeliveryCallback
from odradek.compat.confluent_kafka.serializer_settings import converters

K = TypeVar("K")
V = TypeVar("V")


class SerializingProducer(Producer, Generic[K, V]):
    """`Producer` with `key.serializer` and `value.serializer` among its settings.

    A serializer takes an object and a `SerializationContext` and returns bytes. A setting that ends
    in `.builder` is a `SerializerBuilder`, whose serializer `close()` closes.
    """

    @private
    def __init__(self, conf: dict[str, Any]) -> None:
        self._converters, rest = converters(conf, "serializer")
        try:
            super().__init__(rest)
            self._converters.resolve_by(self.cluster_id)
        except BaseException:
            self._converters.close()
            raise

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize a key and a value, and send them as a message.

        The order of the arguments differs from `Producer.produce`: the key comes before the value.
        Raises `KeySerializationError`, `ValueSerializationError`, and what `Producer.produce`
        raises.
        """
        self._open()
        name, data = carried_out(self._converters.written(topic, key, value, headers))
        super().produce(
            topic,
            data,
            name,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    def close(self) -> bool:
        """Close the producer, then the serializers that it built."""
        closed = super().close()
        self._converters.close()
        return closed
