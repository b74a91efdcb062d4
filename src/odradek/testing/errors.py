"""Define the errors of local clusters, which may occur before any broker answers.

In: nothing. Out: exception classes. Must not: be raised for a fault that a test caused on purpose.
"""

from __future__ import annotations


class ClusterStartError(RuntimeError):
    """The cluster can't be started; the message contains the reason, and maybe the end of a log."""


class JavaNotFoundError(ClusterStartError):
    """No suitable Java was found; the message lists the searched places."""


class JarsError(ClusterStartError):
    """The jars of a Kafka version can't be fetched or verified; the message contains the reason."""


class KeeperError(ClusterStartError):
    """The keeper, the process that owns all brokers, ended or couldn't start a program."""


class ToolError(RuntimeError):
    """One of Kafka's command-line tools failed; the message contains its output."""
