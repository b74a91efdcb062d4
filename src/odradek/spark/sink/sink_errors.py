"""Define the errors of rows and topics, whose texts are passed on to the JVM.

In: what the sink knows of the row, the task and the batch. Out: exceptions whose *text* is
complete, because Spark only passes the text on. Must not: hold configuration or a row's contents: a
text could show a secret in the Spark UI.
"""

from __future__ import annotations

from odradek.common.errors import ConfigurationError, KafkaError


class SinkSchemaError(ConfigurationError):
    """The columns of the frame don't match the sink or its schema."""


class SinkRowError(KafkaError, ValueError):
    """A row is invalid, too large or doesn't fit its schema; `row` is its number in the task."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class SinkWriteError(KafkaError):
    """Rows were not written, or it is unknown whether they were."""


class SinkContextError(KafkaError):
    """Spark doesn't report to which query and batch a task belongs."""


class ReplayError(KafkaError):
    """A batch that was already written is repeated with different rows, or out of order."""
