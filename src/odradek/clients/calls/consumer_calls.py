"""The caller's half of a consumer."""

from __future__ import annotations

from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine


class ConsumerCalls(ClientCalls[ConsumerEngine]):
    """What the callers of one consumer share."""

    def carry_over(self, old: ConsumerEngine, new: ConsumerEngine) -> None:
        """Assignment, positions and pauses are the user's."""
        new.take_over(old.subscription)
