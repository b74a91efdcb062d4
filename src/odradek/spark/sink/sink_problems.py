"""What can go wrong between rows and a topic, in words that survive the way to the JVM.

In: what the sink knows of the row, the task and the batch. Out: exceptions whose *text* says
everything, because Spark hands on the text alone. Must not hold configuration or a row's contents:
a text could carry a secret to the Spark UI.
"""

from __future__ import annotations

from odradek.common.errors import ConfigurationError, KafkaError


class SinkSchemaError(ConfigurationError):
    """The columns to be written don't make records."""


class SinkRowError(KafkaError, ValueError):
    """A row that no record can be made of, or that was refused; `row` counts within its task."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class SinkWriteError(KafkaError):
    """Rows that weren't written, or of which it isn't known."""


class SinkContextError(KafkaError):
    """Spark doesn't say which batch of which query a task belongs to."""


class ReplayError(KafkaError):
    """A batch that was written before comes again with other rows, or out of its turn."""
