"""Benchmark driver of kafkarrow (librdkafka from Rust, returns Arrow batches); see METHOD.md."""

from __future__ import annotations

import argparse

import kafkarrow
from driver import Found, Watch, main, payload


def arrow(options: argparse.Namespace) -> Found:
    """Read Arrow batches, which kafkarrow orders by timestamp over all partitions."""
    watch = Watch()
    manager = kafkarrow.ConsumerManager(
        config={
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "fetch.message.max.bytes": str(8 << 20),
            "fetch.max.bytes": str(50 << 20),
            "queued.min.messages": "1000000",
            "queued.max.messages.kbytes": "262144",
            "fetch.queue.backoff.ms": "10",
        },
        topics=[kafkarrow.SourceTopic.from_earliest(options.topic)],
    )
    records = size = 0
    while records < options.records:
        batch = manager.poll(timeout_ms=100)
        if batch.num_rows:
            watch.seen()
            records += batch.num_rows
            size += payload(batch)
    return watch.stop("Arrow batches in order of time, CRC not checked", records, size)


if __name__ == "__main__":
    main("kafkarrow", kafkarrow.__version__, {"arrow": arrow})
