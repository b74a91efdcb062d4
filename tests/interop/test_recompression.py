"""Test topics with their own codec: the broker recompresses our records, and we read them."""

from __future__ import annotations

import pytest
from tests.interop.other_client import place_topic

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
VALUES = [
    b"".join(b"value %d " % (n * n) for n in range(30_000)),  # fills several blocks of each codec
    *(b"value %d " % n * 9 for n in range(500)),
]


@pytest.mark.parametrize("codec", CODECS)
def test_brokers_recompress_every_codec(cluster: LocalCluster, topic: str, codec: str) -> None:
    servers = cluster.bootstrap_servers
    place_topic(servers, topic, [[0]] * len(CODECS), {"compression.type": codec})
    for partition, ours in enumerate(CODECS):
        config = {
            "bootstrap.servers": servers,
            "compression.type": ours.replace("uncompressed", "none"),
        }
        with Producer(config) as producer:
            written = [producer.send(topic, value, partition=partition) for value in VALUES]
        assert [record.result().offset for record in written] == list(range(len(VALUES)))
    places = [TopicPartition(topic, p) for p in range(len(CODECS))]
    found: dict[int, list[bytes | None]] = {p: [] for p in range(len(CODECS))}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places, until=consumer.end_offsets(places, timeout=60))
        while records := consumer.poll(timeout=10.0):
            for record in records:
                found[record.partition].append(record.value)
    assert found == dict.fromkeys(found, VALUES)
