"""Check R-RB-9 on real brokers: a slow broker isn't dead. A proxy delays one API's responses."""

from __future__ import annotations

import socket
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.proxy_server import ProxyServer, take

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.testing import LocalCluster

LATE = 4.0
"""Twice the time after which a broker is suspected to be dead."""


class SlowProxy(ProxyServer):
    """Proxy that forwards whole frames in order and delays responses of the APIs in `delays`."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: dict[int, float] = {}
        self.requests: Counter[int] = Counter()
        """Number of forwarded requests by API key."""
        self._brokers: set[socket.socket] = set()
        self._open: dict[socket.socket, deque[int]] = defaultdict(deque)
        """API keys of the requests in flight, by the client's socket."""

    def _connect(self, host: str, port: int) -> socket.socket:
        made = super()._connect(host, port)
        self._brokers.add(made)
        return made

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        answers = source in self._brokers
        with suppress(OSError, EOFError):
            while True:
                head = take(source, 4)
                frame = take(source, int.from_bytes(head, "big"))
                if answers:
                    time.sleep(self.delays.get(self._open[sink].popleft(), 0.0))
                else:
                    api = int.from_bytes(frame[:2], "big")
                    self._open[source].append(api)
                    self.requests[api] += 1
                sink.sendall(head + frame)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[SlowProxy]:
    with SlowProxy() as running:
        yield running


def client(cluster: LocalCluster, proxy: SlowProxy, **config: Any) -> tuple[Consumer, list[str]]:
    """Return a consumer that connects through the proxy, and a list of its problem events."""
    servers = cluster.bootstrap_servers
    made = Consumer(bootstrap_servers=servers, proxy_url=proxy.url("socks5"), **config)
    troubles: list[str] = []
    bad = ("rebootstrap", "dial_failed", "retry")
    made._engine.events.listen(lambda e: troubles.append(str(e)) if e.kind in bad else None)
    return made, troubles


def start_delaying(proxy: SlowProxy, api: int) -> float:
    """Delay an API's responses from now on, and return the time."""
    proxy.delays[api] = LATE
    proxy.requests.clear()
    return time.monotonic()


def test_a_late_list_offsets_response_is_used(
    cluster: LocalCluster, topic: str, proxy: SlowProxy
) -> None:
    cluster.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"1").result(30.0)
    tp = TopicPartition(topic, 0)
    made, troubles = client(cluster, proxy)
    with made:
        assert made.beginning_offsets([tp]) == {tp: 0}
        begun = start_delaying(proxy, ListOffsetsRequest.API_KEY)
        assert made.end_offsets([tp]) == {tp: 1}
        assert LATE <= time.monotonic() - begun <= LATE + 10.0
        assert proxy.requests[ListOffsetsRequest.API_KEY] == 1
        assert troubles == []


def test_a_late_commit_response_is_used(
    cluster: LocalCluster, topic: str, proxy: SlowProxy
) -> None:
    cluster.create_topic(topic, partitions=1)
    tp = TopicPartition(topic, 0)
    made, troubles = client(cluster, proxy, group_id=topic, enable_auto_commit=False)
    with made:
        made.commit({tp: OffsetAndMetadata(1)})
        troubles.clear()  # the first group creates the coordinator's topic
        begun = start_delaying(proxy, OffsetCommitRequest.API_KEY)
        made.commit({tp: OffsetAndMetadata(2)})
        assert LATE <= time.monotonic() - begun <= LATE + 10.0
        assert proxy.requests[OffsetCommitRequest.API_KEY] == 1
        assert troubles == []
        proxy.delays.clear()
        found = made.committed([tp])[tp]
        assert found is not None
        assert found.offset == 2
