"""Define the options of consumers, except for those of groups.

Out: a tuple of options, which `table` combines. Must not: store values of a client.
"""

from __future__ import annotations

from odradek.common.options.values import (
    INT_MAX,
    OF_CONSUMERS,
    Option,
    choice,
    integer,
    milliseconds,
    owned,
    reset,
    sent_name,
    unset,
)

CONSUMER_OPTIONS = owned(
    OF_CONSUMERS,
    Option("auto.offset.reset", reset, "latest", "medium", "KIP-1106").says(
        "If a partition has no valid position, the consumer starts at its end (latest), at its "
        "beginning (earliest), or at the first record that is no older than a duration "
        "(by_duration:P7D). With none, it raises an error."
    ),
    unset("client.rack", sent_name, kip="KIP-392").says(
        "The consumer is in this rack. Brokers with a rack-aware replica.selector.class direct "
        "it to a replica in the same rack, and assignors use the rack."
    ),
    Option("fetch.min.bytes", integer(0, INT_MAX), 1, "high").says(
        "A broker answers a fetch request once it has this many bytes for it, or when "
        "fetch.max.wait.ms has passed."
    ),
    Option("fetch.max.wait.ms", milliseconds(0, INT_MAX), 0.5).says(
        "A broker waits at most this many milliseconds for fetch.min.bytes before it answers a "
        "fetch request; the value must be below request.timeout.ms. Meanwhile, partitions that "
        "are sought, resumed or assigned are fetched by another request that doesn't wait, and "
        "so are offsets."
    ),
    Option("fetch.max.bytes", integer(1, INT_MAX), 52428800, "medium").says(
        "A fetch response has at most this many bytes. The same limit applies to responses in "
        "flight and records buffered for poll() together. A single larger batch is returned "
        "anyway."
    ),
    Option(
        "max.partition.fetch.bytes",
        integer(1, INT_MAX),
        2097152,
        "high",
        java="1048576",
        librdkafka="1048576",
    ).says(
        "A fetch response has at most this many bytes of each partition; a single larger batch "
        "is returned anyway.",
        why="Each fetch has a fixed cost in Python, which is small relative to a response of "
        "this size; larger ones need more memory and leave the processor's cache before they "
        "are decoded.",
    ),
    Option("max.poll.records", integer(1, INT_MAX), 500, "medium").says(
        "A call of poll() returns at most this many records, unless it is called with max_records."
    ),
    Option("max.decompressed.batch.bytes", integer(1, 384 << 20), 268435456, "medium").says(
        "A compressed batch that decompresses to more than this many bytes raises RecordLimitError."
    ),
    Option("max.decompression.ratio", integer(1, INT_MAX), 1000).says(
        "A compressed batch that decompresses to more than 32 MiB and more than this many times "
        "its own size raises RecordLimitError."
    ),
    Option("max.records.per.batch", integer(1, INT_MAX), 10000000).says(
        "A batch with more than this many records raises RecordLimitError."
    ),
    Option("max.headers.per.record", integer(0, INT_MAX), 10000).says(
        "A record with more than this many headers raises RecordLimitError, if the consumer "
        "reads headers."
    ),
    Option("on.corrupt.record", choice("fail", "skip"), "fail", "medium").says(
        "If records are corrupt or exceed a limit such as max.records.per.batch, the consumer "
        "raises an error and stays at that position (fail), or skips them with a warning and an "
        "event each time (skip)."
    ),
    Option(
        "isolation.level",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "medium",
        "KIP-98",
        librdkafka="read_committed",
    ).says(
        "With read_committed, the consumer returns records of a transaction only after it was "
        "committed, and never those of an aborted one. With read_uncommitted, it returns all "
        "records."
    ),
)
