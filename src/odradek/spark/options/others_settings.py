"""Settings of other Kafka clients among `kafka.*`: a query copied from a guide brings some.

In: settings without the prefix. Out: those that count here; the others are named in a warning.
Must not let a slip through: only names that other clients really have are dropped, and a setting
that would change the meaning of a query isn't among them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from odradek.common.properties import idle_names

logger = logging.getLogger("odradek.spark")


def without_others(kafka: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Drop what tunes the inside of another client; what is refused by name stays to be refused."""
    idle = [name for name in idle_names(kafka, None) if name not in refused]
    if idle:
        logger.warning(
            "in the options kafka.*: %s: for another Kafka client's buffers, threads or logs, "
            "which aren't here, so this changes nothing",
            ", ".join(sorted(idle)),
        )
    return {name: value for name, value in kafka.items() if name not in idle}
