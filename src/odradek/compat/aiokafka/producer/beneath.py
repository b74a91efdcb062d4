"""The client beneath aiokafka's, under a name that its users know.

In: options. Out: `odradek.AsyncProducer`. Must not: add anything.
"""

from __future__ import annotations

from odradek.api.asyncio_producer import AsyncProducer


class AIOKafkaProducer(AsyncProducer):
    """`AsyncProducer`; texts and warnings say this name."""
