"""Define the options of producers, including those of transactions.

Out: tuples of options, which `table` combines. Must not: store values of a client.
"""

from __future__ import annotations

from odradek.common.options.values import (
    INT_MAX,
    OF_PRODUCERS,
    Option,
    acks,
    boolean,
    choice,
    gzip_level,
    integer,
    milliseconds,
    owned,
    partitioner,
    sent_name,
    unset,
)

PRODUCER_OPTIONS = owned(
    OF_PRODUCERS,
    Option("acks", acks, -1, kip="KIP-679").says(
        "A record is acknowledged when all in-sync replicas have it (all), when the leader has "
        "it (1), or as soon as it is sent, without a response (0). With 1 and 0 the producer "
        "isn't idempotent."
    ),
    Option("enable.idempotence", boolean, True, kip="KIP-98", librdkafka="false").says(
        "With true, brokers drop duplicates and keep the order of records when the producer "
        "retries. Idempotence is switched off by acks=0, acks=1 or retries=0, and by brokers "
        "that don't support it; if this option is explicitly true, these cases are errors "
        "instead."
    ),
    Option("linger.ms", milliseconds(), 0.005, "medium").says(
        "The producer waits this many milliseconds for more records before it sends a batch that "
        "isn't full."
    ),
    Option(
        "batch.size", integer(1, INT_MAX), 131072, "medium", java="16384", librdkafka="1000000"
    ).says(
        "A batch is full at this many bytes; a larger record gets its own batch. If this isn't "
        "set, send_many() and send_arrow() fill batches of up to 512 KiB.",
        why="Fuller batches need fewer requests, and linger.ms=5 leaves time to fill them.",
    ),
    Option("buffer.memory", integer(1024), 33554432, "high").says(
        "The producer buffers at most this many bytes of records that aren't acknowledged yet. "
        "When the buffer is full, send() blocks for up to max.block.ms."
    ),
    Option("max.block.ms", milliseconds(), 60.0, "medium").says(
        "The call send() blocks for at most this many milliseconds while buffer.memory is full, "
        "and a record waits this long for its topic's metadata. It is also the default timeout "
        "of transaction calls."
    ),
    Option("max.request.size", integer(1, INT_MAX), 1048576, "medium", librdkafka="1000000").says(
        "A record may have at most this many bytes before compression. The batches of a Produce "
        "request have at most this many bytes together, or batch.size if that is larger. The "
        "value can't exceed buffer.memory; the default is lowered to buffer.memory if necessary."
    ),
    Option(
        "max.in.flight.requests.per.connection", integer(1, INT_MAX), 5, librdkafka="1000000"
    ).says(
        "The producer has at most this many unanswered Produce requests per broker. With "
        "enable.idempotence the maximum is 5, because brokers remember only a producer's last "
        "five batches."
    ),
    Option("close.timeout.ms", milliseconds(), 5.0).says(
        "If a producer wasn't closed before the program ends, or an exception ends its with "
        "block, buffered records have this many milliseconds to be delivered."
    ),
    Option("delivery.timeout.ms", milliseconds(1), 120.0, "medium", librdkafka="300000").says(
        "A record fails if it isn't acknowledged this many milliseconds after send(). The value "
        "must be at least linger.ms plus request.timeout.ms; if only one side is set, the other "
        "one is adjusted."
    ),
    Option("retries", integer(0, INT_MAX), INT_MAX, "high").says(
        "The producer retries a batch at most this many times; with the default, "
        "delivery.timeout.ms ends the retries. With 0 the producer isn't idempotent."
    ),
    Option(
        "compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"), "none", "high"
    ).says("The producer compresses batches with this codec: none, gzip, snappy, lz4 or zstd."),
    Option("compression.gzip.level", gzip_level, -1, "medium", "KIP-390").says(
        "With compression.type=gzip, this is the compression level, from 1 (fast) to 9 (small). "
        "The default -1 is a fast level, whose batches are about 10 % larger than with Java's "
        "default."
    ),
    Option("compression.lz4.level", integer(1, 17), 9, "medium", "KIP-390").says(
        "With compression.type=lz4, this is the compression level, from 1 to 17: 9 is the fast "
        "compressor, all other levels are LZ4 HC."
    ),
    Option("compression.zstd.level", integer(-(1 << 17), 22), 3, "medium", "KIP-390").says(
        "With compression.type=zstd, this is the compression level, from -131072 (fast) to 22 "
        "(small)."
    ),
    Option(
        "partitioner", partitioner, "default", "high", "KIP-480", librdkafka="consistent_random"
    ).says(
        "A record's partition is chosen by a hash of its key: murmur2 as in Java (default, "
        "murmur2_random, murmur2), CRC32 (consistent_random, consistent) or FNV-1a "
        "(fnv1a_random, fnv1a); random ignores keys. Records without a key are spread over the "
        "partitions, one batch at a time, except with consistent, murmur2 and fnv1a, which put "
        "them all into one partition. Alternatively, set a function that takes topic, key, value "
        "and number of partitions, and returns the partition.",
        why="Keys map to the same partitions as in Java's clients.",
    ),
    Option("partitioner.ignore.keys", boolean, False, "medium", "KIP-794").says(
        "With true, records with keys are distributed like records without keys. This works only "
        "with partitioner=default and random."
    ),
    Option("partitioner.adaptive.partitioning.enable", boolean, True, kip="KIP-794").says(
        "With true, partitions whose batches wait for their broker get fewer of the records "
        "without a key."
    ),
    Option("partitioner.availability.timeout.ms", milliseconds(), 0.0, kip="KIP-794").says(
        "Records without a key avoid the partitions of a broker that has accepted no data for "
        "this many milliseconds although batches are waiting for it; 0 disables this. It needs "
        "partitioner.adaptive.partitioning.enable."
    ),
)

TRANSACTION_OPTIONS = owned(
    OF_PRODUCERS,
    unset("transactional.id", sent_name, kip="KIP-98").says(
        "The producer writes transactions under this id. Only one producer can use an id at a "
        "time: a new one fences the others."
    ),
    Option("transaction.timeout.ms", milliseconds(1, INT_MAX), 60.0, kip="KIP-98").says(
        "The coordinator aborts a transaction that has been open for more than this many "
        "milliseconds. Brokers refuse values above their transaction.max.timeout.ms."
    ),
)
