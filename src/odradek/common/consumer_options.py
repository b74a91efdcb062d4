"""The options of consumers, but for those of groups.

Out: a tuple of options, which `options` puts together. Must not: hold values of a client.
"""

from __future__ import annotations

from odradek.common.option_values import (
    INT_MAX,
    OF_CONSUMERS,
    Option,
    choice,
    integer,
    milliseconds,
    optional,
    reset,
    sent_name,
)

CONSUMER_OPTIONS = (
    Option(
        "auto.offset.reset",
        reset,
        "latest",
        "A partition without a valid position is read from its end (latest), from its beginning "
        "(earliest), or from the first record that is no older than a duration "
        "(by_duration:P7D); with none the consumer raises an error.",
        OF_CONSUMERS,
        "KIP-1106",
        "medium",
    ),
    Option(
        "client.rack",
        optional(sent_name),
        None,
        "The consumer is in this rack: brokers whose replica.selector.class knows racks have it "
        "read from a replica there, and assignors are told the rack.",
        OF_CONSUMERS,
        "KIP-392",
    ),
    Option(
        "fetch.min.bytes",
        integer(0, INT_MAX),
        1,
        "A broker answers a fetch once it has this many bytes for it, or when fetch.max.wait.ms "
        "has passed.",
        OF_CONSUMERS,
        importance="high",
    ),
    Option(
        "fetch.max.wait.ms",
        milliseconds(0, INT_MAX),
        0.5,
        "A broker lets a fetch wait for fetch.min.bytes for at most this many milliseconds, which "
        "must be below request.timeout.ms.",
        OF_CONSUMERS,
    ),
    Option(
        "fetch.max.bytes",
        integer(1, INT_MAX),
        52428800,
        "An answer to a fetch has at most this many bytes, and so have answers under way and "
        "records that wait for poll() together; a single batch that is larger comes all the same.",
        OF_CONSUMERS,
        importance="medium",
    ),
    Option(
        "max.partition.fetch.bytes",
        integer(1, INT_MAX),
        8388608,
        "An answer to a fetch has at most this many bytes of one partition; a single batch that "
        "is larger comes all the same.",
        OF_CONSUMERS,
        importance="high",
        java="1048576",
        librdkafka="1048576",
        why="A fetch has a fixed price in Python, which is small beside an answer of this size.",
    ),
    Option(
        "max.poll.records",
        integer(1, INT_MAX),
        500,
        "A call of poll() returns at most this many records, unless it is given max_records.",
        OF_CONSUMERS,
        importance="medium",
    ),
    Option(
        "max.decompressed.batch.bytes",
        integer(1, 384 << 20),
        268435456,
        "A compressed batch that becomes larger than this many bytes is a RecordLimitError.",
        OF_CONSUMERS,
        importance="medium",
    ),
    Option(
        "max.decompression.ratio",
        integer(1, INT_MAX),
        1000,
        "A compressed batch that becomes more than this many times its own size is a "
        "RecordLimitError, once that is more than 32 MiB.",
        OF_CONSUMERS,
    ),
    Option(
        "max.records.per.batch",
        integer(1, INT_MAX),
        10000000,
        "A batch of more than this many records is a RecordLimitError.",
        OF_CONSUMERS,
    ),
    Option(
        "max.headers.per.record",
        integer(0, INT_MAX),
        10000,
        "A record with more than this many headers is a RecordLimitError, where headers are read.",
        OF_CONSUMERS,
    ),
    Option(
        "on.corrupt.record",
        choice("fail", "skip"),
        "fail",
        "Where records are corrupt, or beyond a limit such as max.records.per.batch, fail raises "
        "an error and stays there; skip leaves them out, with a warning and an event each time.",
        OF_CONSUMERS,
        importance="medium",
    ),
    Option(
        "isolation.level",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "With read_committed a consumer sees records of a transaction once it is committed, and "
        "never those of one that was aborted; with read_uncommitted it sees all records.",
        OF_CONSUMERS,
        "KIP-98",
        "medium",
        librdkafka="read_committed",
    ),
)
