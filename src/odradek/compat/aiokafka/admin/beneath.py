"""The client beneath aiokafka's, under a name that its users know.

In: options. Out: `odradek.AsyncAdmin`. Must not: add anything.
"""

from __future__ import annotations

from odradek.api.asyncio_admin import AsyncAdmin


class AIOKafkaAdminClient(AsyncAdmin):
    """`AsyncAdmin`; texts and warnings say this name."""
