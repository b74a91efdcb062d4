"""The options of connections, metadata and events: all clients have them.

Out: tuples of options, which `options` puts together. Must not: hold values of a client.
"""

from __future__ import annotations

from odradek.common.options.values import (
    INT_MAX,
    OF_CONSUMERS,
    OF_PRODUCERS,
    Option,
    addresses,
    boolean,
    choice,
    idle_time,
    milliseconds,
    sent_name,
    text,
    unset,
)
from odradek.common.proxy import proxy_url

CONNECTION_OPTIONS = (
    Option("bootstrap.servers", addresses, None, "high").says(
        "The client finds its cluster through these addresses, each host:port. A few brokers are "
        "enough, since they name the others; when no known broker can be reached, the client "
        "comes back to these addresses. It is the only option that must be given."
    ),
    Option("client.id", sent_name, "odradek", "medium", java="none", librdkafka="rdkafka").says(
        "This name stands for the client in brokers' logs and quotas, and in its own logs and "
        "events.",
        why="Java numbers its clients where no name is given; quotas and searches in logs need a "
        "name that stays.",
    ),
    Option("enable.metrics.push", boolean, True, kip="KIP-714").says(
        "With true, where a broker has a receiver of metrics and subscribes to some, the client "
        "pushes what it measures: at the interval that the broker names, and once more at its end. "
        "Brokers without a receiver are asked nothing. With false nothing is pushed."
    ),
    Option("reconnect.backoff.ms", milliseconds(), 0.05, kip="KIP-144", librdkafka="100").says(
        "An address that failed is dialled again after this many milliseconds. The wait doubles "
        "with each failure, up to reconnect.backoff.max.ms, and varies by 20 %. Where the option "
        "is given, the client never spaces its dials to all addresses by more than this."
    ),
    Option("reconnect.backoff.max.ms", milliseconds(), 1.0, kip="KIP-144", librdkafka="10000").says(
        "An address that failed is dialled again after this many milliseconds at most. Where only "
        "reconnect.backoff.ms is given, this option has the same value."
    ),
    Option("reconnect.first.jitter.ms", milliseconds(), 0.0).says(
        "The first dial of a client waits for a random time of up to this many milliseconds, drawn "
        "once, so that thousands of clients that start at the same moment don't dial at it. The "
        "timeouts of calls count meanwhile; 0 means that nothing waits."
    ),
    Option("retry.backoff.ms", milliseconds(), 0.1, kip="KIP-580").says(
        "A request that failed is sent again after this many milliseconds. The wait doubles with "
        "each failure in a row, up to retry.backoff.max.ms, and varies by 20 %."
    ),
    Option("retry.backoff.max.ms", milliseconds(), 1.0, kip="KIP-580").says(
        "A request that failed is sent again after this many milliseconds at most."
    ),
    Option(
        "socket.connection.setup.timeout.ms",
        milliseconds(),
        10.0,
        "medium",
        "KIP-601",
        librdkafka="30000",
    ).says(
        "A dial may take this many milliseconds for TCP, TLS, SASL and ApiVersions together. The "
        "time doubles with each failure in a row, up to socket.connection.setup.timeout.max.ms."
    ),
    Option(
        "socket.connection.setup.timeout.max.ms", milliseconds(), 30.0, "medium", "KIP-601"
    ).says("A dial may take this many milliseconds at most, however often it has failed before."),
    Option(
        "connections.max.idle.ms",
        idle_time,
        540.0,
        "medium",
        java="540000 (admin: 300000)",
        librdkafka="0",
    ).says(
        "A connection that has carried nothing for this many milliseconds is closed; 0 (as in "
        "librdkafka) and -1 (as in Java) mean never. Values from 1 to 99 are refused, since "
        "connections would be closed before they are used.",
        why="All kinds of clients have one default here, that of Java's producers and consumers.",
    ),
    Option("request.timeout.ms", milliseconds(1, INT_MAX), 30.0, "medium").says(
        "A request that has no answer after this many milliseconds has failed, and so has its "
        "connection. It is sent again where that is safe."
    ),
    Option("default.api.timeout.ms", milliseconds(), 60.0, "medium").says(
        "A call that is given no timeout of its own ends after this many milliseconds, with an "
        "error that says what was tried."
    ),
    Option("client.dns.lookup", choice("use_all_dns_ips"), "use_all_dns_ips", "medium").says(
        "A host's IP addresses are all tried, one after the other: use_all_dns_ips is the only "
        "value here."
    ),
    unset("proxy.url", proxy_url).says(
        "Connections to brokers go through this proxy. With socks5:// this machine resolves the "
        "brokers' names; with socks5h:// and http:// (CONNECT) the proxy does."
    ),
)

METADATA_OPTIONS = (
    Option("metadata.max.age.ms", milliseconds(), 300.0, librdkafka="900000").says(
        "Metadata (brokers, topics, leaders) is refreshed after this many milliseconds at the "
        "latest. A consumer's pattern is matched again, and its leaders are asked for a nearer "
        "replica again, as often.",
        why="librdkafka refreshes by topic.metadata.refresh.interval.ms, every 300000 ms as here.",
    ),
    Option("metadata.max.idle.ms", milliseconds(5000), 300.0).says(
        "A topic that nobody has used for this many milliseconds is left out of the refreshes, "
        "until it is used again."
    ),
    Option(
        "metadata.recovery.strategy", choice("rebootstrap", "none"), "rebootstrap", kip="KIP-899"
    ).says(
        "When no known broker can be reached, rebootstrap starts again from bootstrap.servers, "
        "and none goes on with the brokers that were known."
    ),
    Option("metadata.recovery.rebootstrap.trigger.ms", milliseconds(), 300.0, kip="KIP-1102").says(
        "With metadata.recovery.strategy=rebootstrap the client starts again from "
        "bootstrap.servers when a refresh that was due has failed for this many milliseconds."
    ),
    Option("metadata.cluster.check.enable", boolean, True, kip="KIP-1242").says(
        "With true the client tells each broker which cluster and which broker it means, so that "
        "a broker notices a connection that was led astray. Brokers of Kafka 4.4 and newer check "
        "it; with metadata.recovery.strategy=none nothing is told."
    ),
    Option(
        "allow.auto.create.topics",
        boolean,
        True,
        "medium",
        "KIP-361",
        OF_PRODUCERS | OF_CONSUMERS,
        librdkafka="true (consumer: false)",
    ).says(
        "With true a topic that is used and doesn't exist is created by brokers that are set to "
        "(auto.create.topics.enable). Admin clients and Spark's source never ask for it."
    ),
    unset("metadata.unavailable.timeout.ms", milliseconds(), kip="KIP-899").says(
        "A call that waits raises NoBrokerAvailableError when no broker could be reached for this "
        "many milliseconds, instead of waiting for its own timeout; records that were sent have "
        "delivery.timeout.ms. Where it isn't given, only a consumer's poll() does that, after "
        "60000 with metadata.recovery.strategy=none and never with rebootstrap."
    ),
    unset("cluster.id.expected", sent_name, "medium", "KIP-899").says(
        "The client refuses every cluster that has another id than this, from its first contact "
        "on, by ClusterIdMismatchError. Without it the first cluster that answers is the one."
    ),
)

EVENT_OPTIONS = (
    unset("events.dir", text).says(
        "The client appends its events to a file in this folder, a line of JSON each. Where it "
        "isn't given, the environment variable ODRADEK_EVENTS_DIR names the folder."
    ),
    unset("events.topic", sent_name).says(
        "The client publishes its events as JSON in this topic, by a producer of its own. That "
        "one keeps up to 4 MiB of them for up to an hour while its cluster is away."
    ),
    unset("events.bootstrap.servers", addresses).says(
        "The topic of events.topic is in the cluster at these addresses, each host:port. Where "
        "it isn't given, it is in the client's own cluster."
    ),
)
