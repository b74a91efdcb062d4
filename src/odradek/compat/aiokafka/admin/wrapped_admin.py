"""Odradek's admin client, wrapped by the aiokafka client of the same name.

In: options. Out: `odradek.AsyncAdmin`. Must not: add anything.
"""

from __future__ import annotations

from odradek.api.asyncio_admin import AsyncAdmin


class AIOKafkaAdminClient(AsyncAdmin):
    """`AsyncAdmin`; error messages and warnings use the name of this class."""
