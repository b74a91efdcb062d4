"""Define the options of connections, metadata and events, which all clients have.

Out: tuples of options, which `table` combines. Must not: store values of a client.
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
    integer,
    milliseconds,
    sent_name,
    text,
    unset,
)
from odradek.common.proxy import proxy_url

RECONNECT_BACKOFF = 0.05
"""Default of `reconnect.backoff.ms`, in seconds."""

CONNECTION_OPTIONS = (
    Option("bootstrap.servers", addresses, None, "high").says(
        "The client connects to these addresses, each host:port, to find the cluster. Two or "
        "three brokers are enough, since their answers list all others. If no known broker can "
        "be reached, the client returns to these addresses. Write IPv6 addresses in brackets: "
        "[2001:db8::1]:9092. This is the only option that every client needs."
    ),
    Option("client.id", sent_name, "odradek", "medium", java="none", librdkafka="rdkafka").says(
        "Brokers see this name in their logs, metrics and quotas, and it appears in the client's "
        "own logs and events.",
        why="Java's clients generate a numbered name if none is set; quotas and log searches "
        "need a stable one.",
    ),
    Option("enable.metrics.push", boolean, True, kip="KIP-714").says(
        "With true, the client pushes its metrics to brokers that have a metrics receiver and a "
        "matching subscription: at the broker's interval, and once more when the client is "
        "closed. A broker without a receiver gets no extra requests. With false, nothing is "
        "pushed."
    ),
    Option(
        "reconnect.backoff.ms",
        milliseconds(),
        RECONNECT_BACKOFF,
        kip="KIP-144",
        librdkafka="100",
    ).says(
        "The client waits this many milliseconds before it reconnects to an address that failed. "
        "The wait doubles with each failure in a row, up to reconnect.backoff.max.ms, and varies "
        "by 20 %. With another value than the default, no pause between connection attempts to "
        "different addresses is longer than this, as far as reconnect.attempts.per.second allows."
    ),
    Option("reconnect.backoff.max.ms", milliseconds(), 1.0, kip="KIP-144", librdkafka="10000").says(
        "The client waits at most this many milliseconds before it reconnects to an address that "
        "failed. If only reconnect.backoff.ms is set, to another value than its default, this "
        "option has the same value."
    ),
    Option("reconnect.attempts.per.second", integer(1, 1000), 6).says(
        "The client makes at most this many connection attempts in any second while it knows of "
        "a failure, 1 to 1000, whatever reconnect.backoff.ms is set to. A higher value lets a "
        "shorter backoff take effect, and costs a cluster that is down more attempts."
    ),
    Option("reconnect.first.jitter.ms", milliseconds(), 0.0).says(
        "The client delays its first connection attempt by a random time of up to this many "
        "milliseconds, so that thousands of clients that start at the same moment don't connect "
        "at once. Timeouts of calls include the delay. With 0 there is no delay."
    ),
    Option("retry.backoff.ms", milliseconds(), 0.1, kip="KIP-580").says(
        "The client waits this many milliseconds before it retries a failed request. The wait "
        "doubles with each failure in a row, up to retry.backoff.max.ms, and varies by 20 %."
    ),
    Option("retry.backoff.max.ms", milliseconds(), 1.0, kip="KIP-580").says(
        "The client waits at most this many milliseconds before it retries a failed request."
    ),
    Option(
        "socket.connection.setup.timeout.ms",
        milliseconds(),
        10.0,
        "medium",
        "KIP-601",
        librdkafka="30000",
    ).says(
        "A connection attempt fails after this many milliseconds, which cover TCP, TLS, SASL and "
        "ApiVersions together. The timeout doubles with each failure in a row, up to "
        "socket.connection.setup.timeout.max.ms."
    ),
    Option(
        "socket.connection.setup.timeout.max.ms", milliseconds(), 30.0, "medium", "KIP-601"
    ).says(
        "This is the upper limit, in milliseconds, to which the timeout of connection attempts "
        "grows after failures in a row."
    ),
    Option(
        "connections.max.idle.ms",
        idle_time,
        540.0,
        "medium",
        java="540000 (admin: 300000)",
        librdkafka="0",
    ).says(
        "The client closes a connection that has been idle for this many milliseconds; 0 (as in "
        "librdkafka) and -1 (as in Java) mean never. Values from 1 to 99 are refused, because "
        "connections would be closed before they are used.",
        why="All kinds of clients share one default, that of Java's producers and consumers.",
    ),
    Option("request.timeout.ms", milliseconds(1, INT_MAX), 30.0, "medium").says(
        "If a request has no response after this many milliseconds, the request fails and the "
        "client closes the connection. The request is sent again if that is safe. A large response "
        "may take longer, as long as at least 1,024 bytes of it arrive every 2 seconds; after a "
        "fetch that was given up, the client asks that broker for fewer bytes. The time for which "
        "a broker announces a throttle (a quota) doesn't count."
    ),
    Option("default.api.timeout.ms", milliseconds(), 60.0, "medium").says(
        "A call without a timeout argument raises a timeout error after this many milliseconds; "
        "the error lists the failed attempts."
    ),
    Option("client.dns.lookup", choice("use_all_dns_ips"), "use_all_dns_ips", "medium").says(
        "The client tries all IP addresses of a host, one after the other: use_all_dns_ips is "
        "the only value. The reconnect backoff grows from address to address, so a name with 50 "
        "addresses of which only the last one accepts connections takes 48 s."
    ),
    unset("proxy.url", proxy_url).says(
        "The client connects to brokers through this proxy. With socks5://, this machine "
        "resolves the brokers' names; with socks5h:// and http:// (CONNECT), the proxy does."
    ),
)

METADATA_OPTIONS = (
    Option("metadata.max.age.ms", milliseconds(), 300.0, librdkafka="900000").says(
        "The client refreshes its metadata (brokers, topics, leaders) at least every this many "
        "milliseconds. At the same interval, a consumer matches its topic pattern again and asks "
        "leaders again for a closer replica.",
        why="librdkafka's equivalent, topic.metadata.refresh.interval.ms, has the same default "
        "as this option: 300000 ms.",
    ),
    Option("metadata.max.idle.ms", milliseconds(5000), 300.0).says(
        "The client stops refreshing the metadata of a topic that it hasn't used for this many "
        "milliseconds, until it uses the topic again."
    ),
    Option(
        "metadata.recovery.strategy", choice("rebootstrap", "none"), "rebootstrap", kip="KIP-899"
    ).says(
        "If no known broker can be reached, the client starts again from bootstrap.servers "
        "(rebootstrap) or keeps trying the brokers that it knows (none)."
    ),
    Option("metadata.recovery.rebootstrap.trigger.ms", milliseconds(), 300.0, kip="KIP-1102").says(
        "With metadata.recovery.strategy=rebootstrap, the client starts again from "
        "bootstrap.servers if it couldn't refresh its metadata for this many milliseconds."
    ),
    Option("metadata.cluster.check.enable", boolean, True, kip="KIP-1242").says(
        "With true, the client names the expected cluster and broker id when it connects, so "
        "that a broker can reject a misrouted connection. Brokers check this since Kafka 4.4; "
        "with metadata.recovery.strategy=none the client sends neither."
    ),
    unset(
        "allow.auto.create.topics",
        boolean,
        "medium",
        "KIP-361",
        clients=OF_PRODUCERS | OF_CONSUMERS,
        java="true",
        librdkafka="true (consumer: false)",
    ).says(
        "With true, a missing topic is created on first use, if the brokers allow it "
        "(auto.create.topics.enable). If this isn't set, it is true for producers and false for "
        "consumers. Brokers before Kafka 0.11 (Metadata below version 4) create topics even with "
        "false. Admin clients and the Spark source never create topics this way.",
        why="A consumer that creates topics hides misspelled names.",
    ),
    Option("bootstrap.timeout.ms", milliseconds(), 10.0, "medium").says(
        "If a client hasn't reached any broker yet, its calls and the records of send() end with "
        "NoBrokerAvailableError after this many milliseconds. A broker is reached once it has "
        "answered ApiVersions and accepted the credentials; from then on this option has no "
        "effect. A consumer's poll() keeps its own timeout. The default adds "
        "reconnect.first.jitter.ms and applies only to calls without a timeout argument, and "
        "not if their own option is set: default.api.timeout.ms, max.block.ms or "
        "delivery.timeout.ms, or metadata.unavailable.timeout.ms. If this option is set, it "
        "applies to all calls."
    ),
    unset("metadata.unavailable.timeout.ms", milliseconds(), kip="KIP-899").says(
        "A blocked call raises NoBrokerAvailableError if no broker could be reached for this "
        "many milliseconds, instead of waiting for its own timeout. Records that were passed to "
        "send() keep their delivery.timeout.ms. If this isn't set, only a consumer's poll() "
        "raises it: after 60000 with metadata.recovery.strategy=none, never with rebootstrap."
    ),
    unset("cluster.id.expected", sent_name, "medium", "KIP-899").says(
        "If a cluster has a different id than this, the client refuses it on first contact with "
        "ClusterIdMismatchError. If this isn't set, the client accepts the first cluster that "
        "answers, and only that one from then on."
    ),
)

EVENT_OPTIONS = (
    unset("events.dir", text).says(
        "The client appends its events to a file in this folder, one line of JSON each. If this "
        "isn't set, the environment variable ODRADEK_EVENTS_DIR names the folder."
    ),
    unset("events.topic", sent_name).says(
        "The client publishes its events as JSON to this topic, through a separate producer. "
        "That producer buffers up to 4 MiB of events for up to an hour while its cluster is "
        "unreachable."
    ),
    unset("events.bootstrap.servers", addresses).says(
        "The cluster of events.topic has these addresses, each host:port. If this isn't set, the "
        "topic is in the client's own cluster."
    ),
)
