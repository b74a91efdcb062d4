"""The options of consumers, but for those of groups.

Out: a tuple of options, which `options` puts together. Must not: hold values of a client.
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
        "A partition without a valid position is read from its end (latest), from its beginning "
        "(earliest), or from the first record that is no older than a duration "
        "(by_duration:P7D); with none the consumer raises an error."
    ),
    unset("client.rack", sent_name, kip="KIP-392").says(
        "The consumer is in this rack: brokers whose replica.selector.class knows racks have it "
        "read from a replica there, and assignors are told the rack."
    ),
    Option("fetch.min.bytes", integer(0, INT_MAX), 1, "high").says(
        "A broker answers a fetch once it has this many bytes for it, or when fetch.max.wait.ms "
        "has passed."
    ),
    Option("fetch.max.wait.ms", milliseconds(0, INT_MAX), 0.5).says(
        "A broker lets a fetch wait for fetch.min.bytes for at most this many milliseconds, which "
        "must be below request.timeout.ms. What is sought, resumed or assigned meanwhile is asked "
        "for beside it, with what is there at once, and so are offsets."
    ),
    Option("fetch.max.bytes", integer(1, INT_MAX), 52428800, "medium").says(
        "An answer to a fetch has at most this many bytes, and so have answers under way and "
        "records that wait for poll() together; a single batch that is larger comes all the same."
    ),
    Option(
        "max.partition.fetch.bytes",
        integer(1, INT_MAX),
        2097152,
        "high",
        java="1048576",
        librdkafka="1048576",
    ).says(
        "An answer to a fetch has at most this many bytes of one partition; a single batch that "
        "is larger comes all the same.",
        why="A fetch has a fixed price in Python, which is small beside an answer of this size; "
        "larger ones cost memory and don't stay in the processor's cache until they are decoded.",
    ),
    Option("max.poll.records", integer(1, INT_MAX), 500, "medium").says(
        "A call of poll() returns at most this many records, unless it is given max_records."
    ),
    Option("max.decompressed.batch.bytes", integer(1, 384 << 20), 268435456, "medium").says(
        "A compressed batch that becomes larger than this many bytes is a RecordLimitError."
    ),
    Option("max.decompression.ratio", integer(1, INT_MAX), 1000).says(
        "A compressed batch that becomes more than this many times its own size is a "
        "RecordLimitError, once that is more than 32 MiB."
    ),
    Option("max.records.per.batch", integer(1, INT_MAX), 10000000).says(
        "A batch of more than this many records is a RecordLimitError."
    ),
    Option("max.headers.per.record", integer(0, INT_MAX), 10000).says(
        "A record with more than this many headers is a RecordLimitError, where headers are read."
    ),
    Option("on.corrupt.record", choice("fail", "skip"), "fail", "medium").says(
        "Where records are corrupt, or beyond a limit such as max.records.per.batch, fail raises "
        "an error and stays there; skip leaves them out, with a warning and an event each time."
    ),
    Option(
        "isolation.level",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "medium",
        "KIP-98",
        librdkafka="read_committed",
    ).says(
        "With read_committed a consumer sees records of a transaction once it is committed, and "
        "never those of one that was aborted; with read_uncommitted it sees all records."
    ),
)
