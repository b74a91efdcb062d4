"""What can go wrong with a local cluster, before any Kafka error can.

In: nothing. Out: exception classes. Must not: be raised for what a test did on purpose.
"""

from __future__ import annotations


class ClusterStartError(RuntimeError):
    """The cluster can't be brought up; the text says why, with the end of a log if it helps."""


class JavaNotFoundError(ClusterStartError):
    """No Java of at least version 17 was found; the text says where it was looked for."""


class JarsError(ClusterStartError):
    """The jars of a Kafka version can't be had; the text says which and why."""


class KeeperError(ClusterStartError):
    """The keeper process is gone or couldn't start a program."""


class ToolError(RuntimeError):
    """One of Kafka's command-line tools failed; the text holds what it printed."""
