"""Abstract classes from which aiokafka's programs derive their own.

In: nothing. Out: abstract classes. Must not: call them; `consumer.listeners` and `settings` do.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping

from odradek.compat.aiokafka.structs import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Listener for rebalances; each method may be plain or `async def`."""

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> object:
        """Handle the revocation of all assigned partitions, before the group rebalances."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> object:
        """Handle the new assignment, which includes partitions that were kept."""


class AbstractTokenProvider(abc.ABC):
    """Provider of tokens for OAUTHBEARER."""

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a token that hasn't expired; called in the client's event loop, at each login."""

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions that are sent with the token."""
        return {}
