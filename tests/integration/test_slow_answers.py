"""Slow is not dead (R-RB-9), on real brokers behind a proxy that keeps the answers of one API."""

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
"""Twice the suspicion time."""


class SlowProxy(ProxyServer):
    """Passes frames on whole, in their order, those that answer an API of `delays` late."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: dict[int, float] = {}
        self.requests: Counter[int] = Counter()
        """Requests that passed, by the API's key."""
        self._brokers: set[socket.socket] = set()
        self._open: dict[socket.socket, deque[int]] = defaultdict(deque)
        """By the client's socket: what is asked and not answered, by the API's key."""

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
    """A consumer behind the proxy, and the troubles that it tells of."""
    servers = cluster.bootstrap_servers
    made = Consumer(bootstrap_servers=servers, proxy_url=proxy.url("socks5"), **config)
    troubles: list[str] = []
    bad = ("rebootstrap", "dial_failed", "retry")
    made._engine.events.listen(lambda e: troubles.append(str(e)) if e.kind in bad else None)
    return made, troubles


def slowly(proxy: SlowProxy, api: int) -> float:
    """From now on; gives the time."""
    proxy.delays[api] = LATE
    proxy.requests.clear()
    return time.monotonic()


def test_late_list_offsets_count(cluster: LocalCluster, topic: str, proxy: SlowProxy) -> None:
    cluster.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"1").result(30.0)
    tp = TopicPartition(topic, 0)
    made, troubles = client(cluster, proxy)
    with made:
        assert made.beginning_offsets([tp]) == {tp: 0}
        begun = slowly(proxy, ListOffsetsRequest.API_KEY)
        assert made.end_offsets([tp]) == {tp: 1}
        assert LATE <= time.monotonic() - begun <= LATE + 10.0
        assert proxy.requests[ListOffsetsRequest.API_KEY] == 1
        assert troubles == []


def test_a_late_commit_counts(cluster: LocalCluster, topic: str, proxy: SlowProxy) -> None:
    cluster.create_topic(topic, partitions=1)
    tp = TopicPartition(topic, 0)
    made, troubles = client(cluster, proxy, group_id=topic, enable_auto_commit=False)
    with made:
        made.commit({tp: OffsetAndMetadata(1)})
        troubles.clear()  # a first group makes its coordinator's topic
        begun = slowly(proxy, OffsetCommitRequest.API_KEY)
        made.commit({tp: OffsetAndMetadata(2)})
        assert LATE <= time.monotonic() - begun <= LATE + 10.0
        assert proxy.requests[OffsetCommitRequest.API_KEY] == 1
        assert troubles == []
        proxy.delays.clear()
        found = made.committed([tp])[tp]
        assert found is not None
        assert found.offset == 2
