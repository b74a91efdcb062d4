"""What a program of aiokafka's derives its own classes from.

In: nothing. Out: abstract classes. Must not: call them; `consumer.listeners` and `settings` do.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping

from odradek.compat.aiokafka.structs import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Hears what the group gives and takes; each method may be plain or `async def`."""

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> object:
        """All that was assigned is given back, before the group divides its partitions again."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> object:
        """These are assigned now, those that stayed among them."""


class AbstractTokenProvider(abc.ABC):
    """Gives the tokens of OAUTHBEARER."""

    @abc.abstractmethod
    async def token(self) -> str:
        """Give a token that isn't over; called in the client's event loop, at each login."""

    def extensions(self) -> Mapping[str, str]:
        """SASL extensions that go with the token."""
        return {}
