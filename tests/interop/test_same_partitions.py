"""Check that our versions of librdkafka's partitioners choose the same partitions."""

from __future__ import annotations

import pyarrow as pa
from tests.interop.other_client import Row, read_all, write_all

from odradek.api.producer import Producer
from odradek.testing import LocalCluster

NAMES = ("consistent_random", "murmur2_random", "fnv1a_random")
PARTITIONS = 7


def test_the_same_key_goes_to_the_same_partition_as_with_librdkafka(
    cluster: LocalCluster, topic: str
) -> None:
    """Write with `send`, `send_arrow` and librdkafka to one topic; values name the writer."""
    servers = cluster.bootstrap_servers
    cluster.create_topic(topic, partitions=PARTITIONS)
    keys = [f"ключ {n}".encode() if n % 5 == 0 else b"k" * (n % 9) + b"%d" % n for n in range(200)]
    for name in NAMES:
        ours = f"ours {name}".encode()
        with Producer({"bootstrap.servers": servers, "partitioner": name}) as producer:
            for key in keys[:100]:
                producer.send(topic, ours, key)
            producer.send_arrow(topic, pa.table({"key": keys[100:], "value": [ours] * 100}))
        theirs = f"theirs {name}".encode()
        write_all(servers, topic, [Row(key, theirs) for key in keys], partitioner=name)
    found = read_all(servers, topic, PARTITIONS)
    places: dict[bytes | None, dict[bytes | None, int]] = {}
    for partition, rows in found.items():
        for row in rows:
            places.setdefault(row.value, {})[row.key] = partition
    assert sum(map(len, found.values())) == 2 * len(NAMES) * len(keys)
    ways = [places[f"ours {name}".encode()] for name in NAMES]
    for name, mine in zip(NAMES, ways, strict=True):
        assert mine == places[f"theirs {name}".encode()], name
        assert set(mine) == set(keys)
        assert set(mine.values()) == set(range(PARTITIONS))
    assert (
        ways[0] != ways[1] != ways[2] != ways[0]
    )  # otherwise one hash would be enough for all partitioners
