"""The options of producers, transactions among them.

Out: tuples of options, which `options` puts together. Must not: hold values of a client.
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
        "A record counts as written when every in-sync replica has it (all), when the leader has "
        "it (1), or once it is sent, without an answer (0). With 1 and 0 the producer writes "
        "without idempotence."
    ),
    Option("enable.idempotence", boolean, True, kip="KIP-98", librdkafka="false").says(
        "With true brokers drop duplicates and keep the order of records that are sent again. It "
        "is off with acks=0, acks=1 and retries=0, and with brokers that don't know it; where "
        "true is given by name, these are errors."
    ),
    Option("linger.ms", milliseconds(), 0.005, "medium").says(
        "A batch that isn't full waits this many milliseconds for more records before it is sent."
    ),
    Option(
        "batch.size", integer(1, INT_MAX), 131072, "medium", java="16384", librdkafka="1000000"
    ).says(
        "A batch is full at this many bytes; a record that is larger has a batch of its own. "
        "Where the option isn't given, send_many() and send_arrow() fill batches of up to "
        "512 KiB.",
        why="Fuller batches mean fewer requests, and with linger.ms=5 they have the time to fill.",
    ),
    Option("buffer.memory", integer(1024), 33554432, "high").says(
        "Records that aren't acknowledged yet take at most this many bytes of memory. When it is "
        "used up, send() waits for room, up to max.block.ms."
    ),
    Option("max.block.ms", milliseconds(), 60.0, "medium").says(
        "The call send() waits at most this many milliseconds for room in buffer.memory, and a "
        "record as long for its topic's metadata. Calls of transactions have this time, too, "
        "unless they are given another."
    ),
    Option("max.request.size", integer(1, INT_MAX), 1048576, "medium", librdkafka="1000000").says(
        "A record may have at most this many bytes before compression, and a Produce request "
        "holds batches of that size in all, or of batch.size where that is more. It can't be "
        "above buffer.memory: where it isn't given it is lowered to that."
    ),
    Option(
        "max.in.flight.requests.per.connection", integer(1, INT_MAX), 5, librdkafka="1000000"
    ).says(
        "A broker has at most this many unanswered Produce requests of the producer. With "
        "enable.idempotence it may be 5 at most, since brokers remember five batches of a "
        "producer."
    ),
    Option("close.timeout.ms", milliseconds(), 5.0).says(
        "Records of a producer that wasn't closed have this many milliseconds at the end of the "
        "program, and so have those of a with block that an exception ends."
    ),
    Option("delivery.timeout.ms", milliseconds(1), 120.0, "medium", librdkafka="300000").says(
        "A record that has no outcome this many milliseconds after send() fails. The time must "
        "cover linger.ms and request.timeout.ms: where only one side is given, the other is "
        "adapted to it."
    ),
    Option("retries", integer(0, INT_MAX), INT_MAX, "high").says(
        "A batch is sent again at most this many times; by default delivery.timeout.ms ends it "
        "first. With 0 the producer writes without idempotence."
    ),
    Option(
        "compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"), "none", "high"
    ).says("Batches are compressed by this codec: none, gzip, snappy, lz4 or zstd."),
    Option("compression.gzip.level", gzip_level, -1, "medium", "KIP-390").says(
        "With compression.type=gzip batches are compressed at this level, from 1 (fast) to 9 "
        "(small); -1 is a fast one, whose batches are a tenth larger than with Java's default."
    ),
    Option("compression.lz4.level", integer(1, 17), 9, "medium", "KIP-390").says(
        "With compression.type=lz4 batches are compressed at this level: 9 is the fast "
        "compressor, and all others from 1 to 17 are LZ4 HC."
    ),
    Option("compression.zstd.level", integer(-(1 << 17), 22), 3, "medium", "KIP-390").says(
        "With compression.type=zstd batches are compressed at this level, from -131072 (fast) to "
        "22 (small)."
    ),
    Option(
        "partitioner", partitioner, "default", "high", "KIP-480", librdkafka="consistent_random"
    ).says(
        "Keys choose the partition of a record by murmur2 as in Java (default, murmur2_random, "
        "murmur2), by CRC32 (consistent_random, consistent) or by fnv1a_random or fnv1a; random "
        "looks at no key. Records without a key are spread, a batch at a time, but by consistent, "
        "murmur2 and fnv1a they go to one partition. A function of topic, key, value and number "
        "of partitions chooses by itself.",
        why="Keys go where Java's clients put them.",
    ),
    Option("partitioner.ignore.keys", boolean, False, "medium", "KIP-794").says(
        "With true records with keys are spread like those without. It goes with "
        "partitioner=default and random only."
    ),
    Option("partitioner.adaptive.partitioning.enable", boolean, True, kip="KIP-794").says(
        "With true records without a key go less often to partitions whose batches wait for "
        "their broker."
    ),
    Option("partitioner.availability.timeout.ms", milliseconds(), 0.0, kip="KIP-794").says(
        "Records without a key avoid the partitions of a broker that has taken nothing for this "
        "many milliseconds although batches wait for it; 0 switches that off. It needs "
        "partitioner.adaptive.partitioning.enable."
    ),
)

TRANSACTION_OPTIONS = owned(
    OF_PRODUCERS,
    unset("transactional.id", sent_name, kip="KIP-98").says(
        "The producer writes transactions under this name. One producer at a time has a name: "
        "the newest one shuts the others out."
    ),
    Option("transaction.timeout.ms", milliseconds(1, INT_MAX), 60.0, kip="KIP-98").says(
        "The coordinator aborts a transaction that is open for more than this many milliseconds. "
        "Brokers refuse more than their transaction.max.timeout.ms."
    ),
)
