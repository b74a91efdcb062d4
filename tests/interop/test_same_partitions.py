"""Under the name of one of librdkafka's partitioners, a key goes where librdkafka puts it."""

from __future__ import annotations

import pyarrow as pa
from tests.interop.other_client import Row, read_all, write_all

from odradek.api.producer import Producer
from odradek.testing import LocalCluster

NAMES = ("consistent_random", "murmur2_random", "fnv1a_random")
PARTITIONS = 7


def test_the_same_key_goes_where_librdkafka_puts_it(cluster: LocalCluster, topic: str) -> None:
    """Of 200 keys half go by `send`, half by `send_arrow`; the names differ from each other."""
    servers = cluster.bootstrap_servers
    keys = [f"ключ {n}".encode() if n % 5 == 0 else b"k" * (n % 9) + b"%d" % n for n in range(200)]
    rows = [Row(key, b"x") for key in keys]
    everywhere = []
    for name in NAMES:
        places = {}
        for who in ("ours", "librdkafka"):
            target = f"{topic}-{name}-{who}"
            cluster.create_topic(target, partitions=PARTITIONS)
            if who == "ours":
                with Producer(bootstrap_servers=servers, partitioner=name) as producer:
                    for row in rows[:100]:
                        producer.send(target, row.value, row.key)
                    producer.send_arrow(
                        target, pa.table({"key": keys[100:], "value": [b"x"] * 100})
                    )
            else:
                write_all(servers, target, rows, partitioner=name)
            found = read_all(servers, target, PARTITIONS)
            places[who] = {row.key: partition for partition, rows in found.items() for row in rows}
        assert len(places["ours"]) == len(keys)
        assert places["ours"] == places["librdkafka"], name
        assert set(places["ours"].values()) == set(range(PARTITIONS))
        everywhere.append(places["ours"])
    assert everywhere[0] != everywhere[1] != everywhere[2] != everywhere[0]
