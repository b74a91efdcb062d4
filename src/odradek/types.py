"""Types for annotations and for code that extends a client.

    from odradek.types import Assignor, ManyFuture

Contains the futures of `send_many()` and `send_arrow()`, the offsets in them (`OffsetRange`), the
protocol of partition assignors, the type of partitioner functions, a broker's `Address`, and the
options that all kinds of clients have.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
