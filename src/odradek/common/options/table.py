"""Combine all options of clients in one table.

Out: `GROUPS`, the options under the headings of docs/configuration.md; `OPTIONS`, by Kafka's name.
`config` uses them to read a client's values. Must not: store values of a client.
"""

from __future__ import annotations

from odradek.common.options.connection import CONNECTION_OPTIONS, EVENT_OPTIONS, METADATA_OPTIONS
from odradek.common.options.consumer import CONSUMER_OPTIONS
from odradek.common.options.group import GROUP_OPTIONS
from odradek.common.options.producer import PRODUCER_OPTIONS, TRANSACTION_OPTIONS
from odradek.common.options.security import SECURITY_OPTIONS
from odradek.common.options.values import Option

GROUPS: dict[str, tuple[Option, ...]] = {
    "Connections": CONNECTION_OPTIONS,
    "Metadata and recovery": METADATA_OPTIONS,
    "Producer": PRODUCER_OPTIONS,
    "Transactions": TRANSACTION_OPTIONS,
    "Consumer": CONSUMER_OPTIONS,
    "Groups": GROUP_OPTIONS,
    "Security": SECURITY_OPTIONS,
    "Events": EVENT_OPTIONS,
}
OPTIONS: dict[str, Option] = {o.name: o for options in GROUPS.values() for o in options}
