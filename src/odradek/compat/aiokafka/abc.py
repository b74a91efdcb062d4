"""Abstract classes of aiokafka: listeners for rebalances and providers of tokens."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from odradek.compat.aiokafka.structs import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Listener for rebalances; each method may be a plain function or a coroutine function."""

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
