"""Look up the names of topics that a coordinator names by id (KIP-848).

In: topic ids; metadata. Out: names. An id that the metadata lacks is requested from any broker:
with a pattern the member doesn't know the names, and a recreated topic has another id. Must not:
change the metadata.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek.clients.any_broker import AnyBrokerCall, Brokers
from odradek.clients.descriptions import check_metadata
from odradek.metadata.cluster import Cluster
from odradek.network.flow import Flow
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


class TopicNames:
    """Topic names by id; an id never gets another name."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._metadata = brokers.metadata
        self._known: dict[bytes, str] = {}
        self._read: Cluster | None = None
        """The metadata snapshot from which `_here` was built."""
        self._here: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> str | None:
        """Return the name, if it is known without a request."""
        name = self._known.get(topic_id)
        snapshot = self._metadata.snapshot
        if name is None and snapshot is not None:
            if self._read is not snapshot:  # build the index once for each snapshot
                self._read = snapshot
                self._here = {t.topic_id: t.name for t in snapshot.topics.values()}
            name = self._here.get(topic_id)
            if name is not None:
                self._known[topic_id] = name
        return name

    def keep(self, topic_ids: Collection[bytes]) -> None:
        """Forget all names except those of these ids."""
        self._known = {i: name for i, name in self._known.items() if i in topic_ids}
        self._read, self._here = None, {}

    def ask(self, topic_ids: Collection[bytes], deadline: float) -> Flow[None]:
        """Request the names of these ids; ids that the broker doesn't know remain unknown."""
        body = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id, None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        call = AnyBrokerCall(self._brokers, "names of topics", deadline)
        answer = yield from call.ask(
            lambda _: body, MetadataResponse, check_metadata(self._brokers)
        )
        for topic in answer.topics:
            if topic.error_code == 0 and topic.name:
                self._known[bytes(topic.topic_id)] = topic.name
