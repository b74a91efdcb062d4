"""Build metadata responses and apply them to a client's metadata."""

from __future__ import annotations

import random

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Address
from odradek.metadata.metadata import Metadata
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER = b"i" * 16, b"o" * 16
GONE = MetadataResponseTopic(error_code=3, name="t")


def topic(
    name: str, leaders: list[int], *, epoch: int = 1, id_: bytes = ID
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=n, leader_id=leader, leader_epoch=epoch)
        for n, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, topic_id=id_, partitions=partitions)


def answer(
    *topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2), cluster_id: str | None = "c"
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in brokers],
        cluster_id=cluster_id,
        controller_id=1,
        topics=list(topics),
    )


class Known(Metadata):
    """A client's metadata with its own clock; the client uses topic `t`."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(
            max_age=300.0,
            max_idle=300.0,
            retry=ExponentialBackoff(0.1, 1.0, 0.0),
            rng=random.Random(1),
            clock=lambda: self.now,
        )
        self.want(["t"])

    def refresh(
        self, now: float, response: MetadataResponse, at: Address | None = None
    ) -> int | None:
        """Apply a response from an address and return the leader of the last partition of `t`."""
        self.now = now
        topics, partial = self.next_topics()
        serial = self.sent(topics)
        self.apply(response, topics, now, partial=partial, fresh=False, serial=serial, at=at)
        assert self.snapshot is not None
        found = self.snapshot.topics.get("t")
        return found.partitions[-1].leader if found is not None else None
