"""Define the errors of a checkpoint and a cluster, whose texts are passed on to the JVM.

In: topics, partitions, offsets and ids. Out: exceptions whose *text* is complete, because Spark
only passes the text on (class and attributes of a Python exception are lost). Must not: hold
configuration: a text could show a secret in the Spark UI.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.common.errors import ConfigurationError, KafkaError, KafkaTimeoutError
from odradek.common.printable import printable

OPT_OUT = (
    "If losing records is acceptable, set option failOnDataLoss to false: the query then logs "
    "this as a warning and continues with the records that exist."
)


class OptionError(ConfigurationError):
    """An option of the Spark source or sink is missing, unknown or has an invalid value."""


class DataLossError(KafkaError):
    """Unread records were lost, or can't be distinguished from newer records."""

    several_lines = True

    def __init__(self, losses: Sequence[str], *, advice: str = OPT_OUT) -> None:
        self.losses = tuple(losses)
        shown = [printable(loss) for loss in self.losses[:20]]
        if len(self.losses) > len(shown):
            shown.append(f"… and {len(self.losses) - len(shown)} more")
        super().__init__("\n  ".join(["Some data may have been lost:", *shown, advice]))


class OutageError(KafkaTimeoutError):
    """The cluster didn't answer for longer than the query tolerates."""


class NoProgressError(KafkaTimeoutError):
    """The brokers answer, but a partition returns no records although there are some to read."""


class MissingTopicError(KafkaError):
    """A topic or partition that the options name doesn't exist."""


class TimestampRangeError(KafkaError):
    """A record's timestamp doesn't fit Spark's column (see option outOfRangeTimestamps)."""


class UndecodableValueError(KafkaError):
    """A value doesn't match option valueSchema, and option valueMode is FAILFAST."""
