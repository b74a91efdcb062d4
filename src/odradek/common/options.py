"""The options that all clients, producers and assigned consumers have: each stands here once.

Out: `OPTIONS`, by Kafka's name, with type, default, check, text and KIP. `config` reads them.
Must not: hold values of a client.
"""

from __future__ import annotations

from odradek.common.option_values import (
    INT_MAX,
    OF_CONSUMERS,
    OF_PRODUCERS,
    Option,
    acks,
    addresses,
    boolean,
    choice,
    gzip_level,
    idle_time,
    integer,
    milliseconds,
    only,
    optional,
    partitioner,
    reset,
    sent_name,
    text,
)

OPTIONS: dict[str, Option] = {
    o.name: o
    for o in (
        Option("bootstrap.servers", addresses, None, "Where to start: host:port, with commas."),
        Option("client.id", sent_name, "odradek", "Name that brokers' logs and quotas use."),
        Option(
            "reconnect.backoff.ms",
            milliseconds(),
            0.05,
            "First wait before an address that failed is dialled again.",
            kip="KIP-144",
        ),
        Option(
            "reconnect.backoff.max.ms",
            milliseconds(),
            1.0,
            "Longest such wait; equals reconnect.backoff.ms where only that one is set.",
            kip="KIP-144",
        ),
        Option("retry.backoff.ms", milliseconds(), 0.1, "First wait of a retry.", kip="KIP-580"),
        Option("retry.backoff.max.ms", milliseconds(), 1.0, "Longest such wait.", kip="KIP-580"),
        Option(
            "socket.connection.setup.timeout.ms",
            milliseconds(),
            10.0,
            "Time for TCP, TLS and ApiVersions of one dial; grows with each failure.",
            kip="KIP-601",
        ),
        Option(
            "socket.connection.setup.timeout.max.ms",
            milliseconds(),
            30.0,
            "Longest such time.",
            kip="KIP-601",
        ),
        Option(
            "connections.max.idle.ms",
            idle_time,
            540.0,
            "When idle connections are closed, 100 or more; 0 (as in librdkafka) or -1 (as in "
            "Java): never.",
        ),
        Option(
            "request.timeout.ms", milliseconds(1, INT_MAX), 30.0, "Longest wait for one answer."
        ),
        Option("default.api.timeout.ms", milliseconds(), 60.0, "A call's time if none is given."),
        Option("metadata.max.age.ms", milliseconds(), 300.0, "Refresh at least this often."),
        Option(
            "metadata.max.idle.ms",
            milliseconds(5000),
            300.0,
            "Topics that nobody has used for this long are no longer refreshed.",
        ),
        Option(
            "metadata.recovery.strategy",
            choice("rebootstrap", "none"),
            "rebootstrap",
            "What to do when no known broker can be reached.",
            kip="KIP-899",
        ),
        Option(
            "metadata.recovery.rebootstrap.trigger.ms",
            milliseconds(),
            300.0,
            "Rebootstrap when a due refresh hasn't succeeded for this long.",
            kip="KIP-1102",
        ),
        Option(
            "metadata.cluster.check.enable",
            boolean,
            True,
            "Tell each broker which cluster and broker is meant, so that it notices a connection "
            "that was led astray (brokers from 4.4 on; with strategy rebootstrap).",
            kip="KIP-1242",
        ),
        Option(
            "allow.auto.create.topics",
            boolean,
            True,
            "Let brokers that are set to (auto.create.topics.enable) make a topic that is used and "
            "isn't there. Admin clients and Spark's source never do.",
            OF_PRODUCERS | OF_CONSUMERS,
            kip="KIP-361",
        ),
        Option(
            "metadata.unavailable.timeout.ms",
            optional(milliseconds()),
            None,
            "With strategy none: poll() raises after this long without a broker (60 s).",
        ),
        Option(
            "cluster.id.expected",
            optional(sent_name),
            None,
            "Fail unless the cluster has this id, also at the first contact.",
            kip="KIP-899",
        ),
        Option("client.dns.lookup", choice("use_all_dns_ips"), "use_all_dns_ips", "Kafka's."),
        Option("events.dir", optional(text), None, "Append events as JSON lines there."),
        Option("events.topic", optional(sent_name), None, "Publish events as JSON to this topic."),
        Option(
            "events.bootstrap.servers",
            optional(addresses),
            None,
            "The cluster of events.topic, if it isn't this client's own.",
        ),
        Option("acks", acks, -1, "Always all.", OF_PRODUCERS),
        Option(
            "enable.idempotence",
            only(value="true", later="producers without idempotence"),
            "true",
            "Always on.",
            OF_PRODUCERS,
        ),
        Option(
            "linger.ms", milliseconds(), 0.005, "Wait this long for a fuller batch.", OF_PRODUCERS
        ),
        Option(
            "batch.size", integer(1, INT_MAX), 131072, "Bytes of a batch, at most.", OF_PRODUCERS
        ),
        Option("buffer.memory", integer(1024), 33554432, "Bytes that wait, at most.", OF_PRODUCERS),
        Option(
            "max.block.ms",
            milliseconds(),
            60.0,
            "How long send() may wait for room, and a record for its topic.",
            OF_PRODUCERS,
        ),
        Option(
            "max.request.size",
            integer(1, INT_MAX),
            1048576,
            "Bytes of one record, max.",
            OF_PRODUCERS,
        ),
        Option(
            "max.in.flight.requests.per.connection",
            integer(1, 5),
            5,
            "Unanswered Produce requests per broker.",
            OF_PRODUCERS,
        ),
        Option(
            "close.timeout.ms",
            milliseconds(),
            5.0,
            "How long the end of the program waits for records of a producer that wasn't closed.",
            OF_PRODUCERS,
        ),
        Option(
            "delivery.timeout.ms",
            milliseconds(1),
            120.0,
            "From send() to the outcome.",
            OF_PRODUCERS,
        ),
        Option(
            "retries",
            integer(0, INT_MAX),
            INT_MAX,
            "How often a batch is sent again.",
            OF_PRODUCERS,
        ),
        Option(
            "compression.type",
            choice("none", "gzip", "snappy", "lz4", "zstd"),
            "none",
            "none, gzip, snappy, lz4 or zstd.",
            OF_PRODUCERS,
        ),
        Option(
            "compression.gzip.level",
            gzip_level,
            -1,
            "1 (fast) to 9 (small); -1 is the default, a fast one.",
            OF_PRODUCERS,
            "KIP-390",
        ),
        Option(
            "compression.lz4.level",
            integer(1, 17),
            9,
            "9 is the fast compressor; all others, 1 to 17, are LZ4 HC.",
            OF_PRODUCERS,
            "KIP-390",
        ),
        Option(
            "compression.zstd.level",
            integer(-(1 << 17), 22),
            3,
            "-131072 (fast) to 22 (small).",
            OF_PRODUCERS,
            "KIP-390",
        ),
        Option(
            "partitioner",
            partitioner,
            "default",
            "default (as Java: murmur2 of the key), librdkafka's random, consistent (CRC32), "
            "murmur2 or fnv1a; a function of topic, key, value and number of partitions. With "
            "_random behind a name, records without a key are spread, a batch at a time.",
            OF_PRODUCERS,
            "KIP-480",
        ),
        Option(
            "partitioner.ignore.keys",
            boolean,
            False,
            "Spread records with keys as well; with partitioner=default only.",
            OF_PRODUCERS,
            "KIP-794",
        ),
        Option(
            "transactional.id",
            optional(sent_name),
            None,
            "Who writes transactions: one producer at a time, the newest, goes by this name.",
            OF_PRODUCERS,
            "KIP-98",
        ),
        Option(
            "transaction.timeout.ms",
            milliseconds(1, INT_MAX),
            60.0,
            "The coordinator aborts a transaction that is open for longer.",
            OF_PRODUCERS,
            "KIP-98",
        ),
        Option(
            "partitioner.adaptive.partitioning.enable",
            boolean,
            True,
            "Send fewer records without a key to partitions whose batches wait.",
            OF_PRODUCERS,
            "KIP-794",
        ),
        Option(
            "partitioner.availability.timeout.ms",
            milliseconds(),
            0.0,
            "None at all to brokers that took nothing for so long; 0: off.",
            OF_PRODUCERS,
            "KIP-794",
        ),
        Option(
            "auto.offset.reset",
            reset,
            "latest",
            "latest, earliest, none, or by_duration:P7D: the first record so young, else the end.",
            OF_CONSUMERS,
            "KIP-1106",
        ),
        Option(
            "client.rack",
            optional(sent_name),
            None,
            "Where this client is; with a replica.selector.class of the brokers' that knows racks, "
            "partitions are read from a replica there.",
            OF_CONSUMERS,
            "KIP-392",
        ),
        Option(
            "fetch.min.bytes", integer(0, INT_MAX), 1, "Let brokers wait for so much.", OF_CONSUMERS
        ),
        Option(
            "fetch.max.wait.ms", milliseconds(0, INT_MAX), 0.5, "… but not longer.", OF_CONSUMERS
        ),
        Option(
            "fetch.max.bytes", integer(1, INT_MAX), 52428800, "Bytes of one fetch.", OF_CONSUMERS
        ),
        Option(
            "max.partition.fetch.bytes",
            integer(1, INT_MAX),
            8388608,
            "… per partition.",
            OF_CONSUMERS,
        ),
        Option(
            "max.poll.records", integer(1, INT_MAX), 500, "Records of one poll().", OF_CONSUMERS
        ),
        Option(
            "max.decompressed.batch.bytes",
            integer(1, 384 << 20),
            268435456,
            "How large a compressed batch may become; a larger one is a RecordLimitError.",
            OF_CONSUMERS,
        ),
        Option(
            "max.decompression.ratio",
            integer(1, INT_MAX),
            1000,
            "How many times its own size a compressed batch may become, beyond 32 MiB.",
            OF_CONSUMERS,
        ),
        Option(
            "max.records.per.batch",
            integer(1, INT_MAX),
            10000000,
            "How many records a batch may have; one of more is a RecordLimitError.",
            OF_CONSUMERS,
        ),
        Option(
            "max.headers.per.record",
            integer(0, INT_MAX),
            10000,
            "How many headers a record may have, where headers are read; else a RecordLimitError.",
            OF_CONSUMERS,
        ),
        Option(
            "on.corrupt.record",
            choice("fail", "skip"),
            "fail",
            "Whether poll() raises for what is corrupt or beyond those limits and stays before it, "
            "or goes on behind it, with a warning and an event each time.",
            OF_CONSUMERS,
        ),
        Option(
            "isolation.level",
            choice("read_uncommitted", "read_committed"),
            "read_uncommitted",
            "Whether records of open and aborted transactions are hidden.",
            OF_CONSUMERS,
        ),
    )
}
