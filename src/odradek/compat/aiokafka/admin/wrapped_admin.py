"""Odradek's admin client that aiokafka's wraps, under a name that users know.

In: options. Out: `odradek.AsyncAdmin`. Must not: add anything.
"""

from __future__ import annotations

from odradek.api.asyncio_admin import AsyncAdmin


class AIOKafkaAdminClient(AsyncAdmin):
    """`AsyncAdmin`; error messages and warnings use the name of this class."""
