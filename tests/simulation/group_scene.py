"""A simulated cluster with a topic, and group members whose callbacks are recorded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition

PARTITIONS = [TopicPartition("t", p) for p in range(4)]
MADE: list[Consumer] = []
"""Consumers that a test has created; `conftest` closes them afterwards."""
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Scene(Stage):
    """A cluster with topic t, and members of one group."""

    def __init__(self, protocol: str = "classic", seed: int = 1) -> None:
        super().__init__(seed, partitions=4)
        self.protocol = protocol
        self.log: list[str] = []

    def member(self, name: str = "a", **config: Any) -> Consumer:
        given = {"group_id": "g", "group_protocol": self.protocol, **config}
        MADE.append(self.consumer(name=name, **given))
        return MADE[-1]

    def transactional(self, name: str = "transactional", **config: Any) -> Producer:
        """Create a producer and call its init_transactions()."""
        made = self.client(Producer, name, transactional_id="x", **config)
        made.init_transactions()
        return made

    def subscribed(self, name: str = "a", **config: Any) -> Consumer:
        found = self.member(name, **config)
        found.subscribe(["t"], **self.callbacks(name))
        return found

    def callbacks(self, name: str) -> dict[str, Any]:
        def note(what: str) -> Any:
            def callback(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                numbers = " ".join(str(p.partition) for p in sorted(partitions))
                self.log.append(f"{name} {what} {numbers}".strip())

            return callback

        return {f"on_{what}": note(what) for what in ("assigned", "revoked", "lost")}

    def committed(self) -> list[int | None]:
        """Return the committed offsets of the group, requested by a client that isn't a member."""
        with self.member("observer", enable_auto_commit=False) as observer:
            found = observer.committed(PARTITIONS)
        return [None if o is None else o.offset for o in found.values()]
