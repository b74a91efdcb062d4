"""Every metric by name: its unit, whether it only grows, and what it means.

Names, units and meanings are those of Kafka's Java clients where those have the metric; the texts
say where it differs here. What is of group `odradek-metrics` is ours. Must not: read a client.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.clients.metrics.metric import Kind

OURS = "odradek-metrics"
LATELY = "of the last 30 to 60 s"


class Meaning(NamedTuple):
    """What is said of all metrics with one name."""

    unit: str
    kind: Kind
    text: str


def _counter(text: str, unit: str = "") -> Meaning:
    return Meaning(unit, "counter", text)


def _gauge(text: str, unit: str = "") -> Meaning:
    return Meaning(unit, "gauge", text)


def _lately(what: str, unit: str) -> dict[str, Meaning]:
    """An average and a maximum of the running and the last sample."""
    return {
        "-avg": _gauge(f"The average {what}, {LATELY}.", unit),
        "-max": _gauge(f"The maximum {what}, {LATELY}.", unit),
    }


def _pairs(**whats: tuple[str, str]) -> dict[str, Meaning]:
    return {
        name.replace("_", "-") + end: meaning
        for name, (what, unit) in whats.items()
        for end, meaning in _lately(what, unit).items()
    }


CONNECTIONS = {
    "connection-count": _gauge("Connections that are ready for requests."),
    "connection-creation-total": _counter("Connections that came up (TCP, and TLS)."),
    "connection-close-total": _counter("Connections that had come up and have ended."),
    "successful-authentication-total": _counter("Connections that authenticated with SASL."),
    "successful-reauthentication-total": _counter(
        "Times that a connection in use authenticated again (KIP-368)."
    ),
    "failed-authentication-total": _counter(
        "Connections that ended because a broker refused their authentication."
    ),
    "request-total": _counter("Requests that were sent."),
    "response-total": _counter("Requests that were answered."),
    "requests-in-flight": _gauge("Requests that wait for their answer."),
    **_pairs(request_latency=("time from a request to its answer", "ms")),
    "metadata-age": _gauge("Age of the metadata in use.", "s"),
}
PRODUCER = {
    "record-send-total": _counter("Records that were sent; a record counts each time."),
    "byte-total": _counter("Bytes of the batches that were sent, compressed.", "bytes"),
    "record-retry-total": _counter("Records whose batch was to be sent again, each time."),
    "record-error-total": _counter(
        "Records that ended with an error, which says whether they may have been written."
    ),
    "batch-split-total": _counter("Batches that were sent again in parts."),
    **_pairs(
        batch_size=("size of a batch that was sent, compressed", "bytes"),
        record_queue_time=("time from the beginning of a batch until it was sent", "ms"),
    ),
    "records-per-request-avg": _gauge(f"The average number of records in a request, {LATELY}."),
    "produce-throttle-time-avg": _gauge(
        f"The quiet that brokers asked for after writes, by write, {LATELY}.", "ms"
    ),
    "produce-throttle-time-max": _gauge(
        f"The longest quiet that a broker asked for after a write, {LATELY}.", "ms"
    ),
    "buffer-total-bytes": _gauge("What `buffer.memory` allows.", "bytes"),
    "buffer-available-bytes": _gauge("What of it is free.", "bytes"),
    "waiting-threads": _gauge("Calls that wait for room in it."),
    "record-acknowledged-total": _counter("Records that were written."),
}
CONSUMER = {
    "fetch-total": _counter("Fetches that were answered."),
    **_pairs(fetch_latency=("time from a fetch to its answer", "ms")),
    "fetch-throttle-time-avg": _gauge(
        f"The quiet that brokers asked for after fetches, by fetch, {LATELY}.", "ms"
    ),
    "fetch-throttle-time-max": _gauge(
        f"The longest quiet that a broker asked for after a fetch, {LATELY}.", "ms"
    ),
    "records-consumed-total": _counter("Records that were handed to the program."),
    "bytes-consumed-total": _counter(
        "Bytes of the batches that were decoded for that, as they lie in the log: compressed "
        "(Java: decompressed).",
        "bytes",
    ),
    "records-lag": _gauge(
        "Offsets from the program's position to the end of the log, as the last fetch told it."
    ),
    "committed-lag": _gauge(
        "Offsets from what the group has committed, as far as this client knows, to the log's end."
    ),
    "records-lag-max": _gauge("The largest of all assigned partitions, just now."),
    "last-poll-seconds-ago": _gauge("Since the program last asked for records; 0 in poll().", "s"),
    "commit-total": _counter("Commits that were answered."),
    **_pairs(
        commit_latency=("time from a commit to its answer", "ms"),
        rebalance_latency=("time from leaving the stable state until it was reached again", "ms"),
    ),
    "heartbeat-total": _counter("Heartbeats that were answered."),
    "heartbeat-response-time-max": _gauge(
        f"The maximum time from a heartbeat to its answer, {LATELY}.", "ms"
    ),
    "rebalance-latency-total": _counter("All these times together.", "ms"),
    "rebalance-total": _counter("Rebalances that this member took part in to their end."),
    "last-rebalance-seconds-ago": _gauge("Since the end of the last of them.", "s"),
    "assigned-partitions": _gauge("Partitions that are assigned."),
    "fetch-bytes-total": _counter("Bytes of records that came, compressed.", "bytes"),
    "fetch-bytes-waiting": _gauge("Bytes of them that wait for the program.", "bytes"),
    "fetch-bytes-budget": _gauge("What `fetch.max.bytes` allows of them.", "bytes"),
    "decode-time-total": _counter("Time that decoding took, in the program's calls.", "ms"),
    "batch-skipped-total": _counter("Batches left out by `on.corrupt.record=skip`."),
}
CLIENT = {
    "dial-total": _counter("Attempts to open a connection."),
    "dial-failed-total": _counter(
        "Attempts that ended without a usable connection; also where a name didn't resolve."
    ),
    "address-backoff-count": _gauge("Addresses that wait after a failure before they are dialled."),
    "silence-total": _counter("Times that a broker said nothing for too long."),
    "retry-total": _counter("Times that a request was to be sent again after a backoff."),
    "expired-total": _counter("Batches and calls whose time was up."),
    "metadata-request-total": _counter("Requests for metadata."),
    **_pairs(metadata_latency=("time from a request for metadata to its answer", "ms")),
    "metadata-round-total": _counter("Rounds: passes over all whom metadata can be asked of."),
    "metadata-round-failed-total": _counter("Rounds without an answer; each costs a backoff."),
    "hedged-request-total": _counter(
        "Requests for metadata beside which another broker was asked, as no answer had come."
    ),
    "rebootstrap-total": _counter("Times that the client started again from its bootstrap."),
    "outage-seconds": _gauge("Length of the outage that is running; 0 where none is.", "s"),
    "throttle-total": _counter(
        "Answers to writes and fetches with which a broker asked for quiet."
    ),
    "throttle-time-total": _counter("All the quiet that they asked for.", "ms"),
    "receive-buffer-bytes": _gauge("Receive buffers that are kept for large answers.", "bytes"),
}
WORK = {
    "work-running": _gauge("Records that workers have in work."),
    "work-waiting": _gauge("Records that workers have read and not in work, for retries, too."),
    "work-buffered-bytes": _gauge("Bytes of both, as `buffer_bytes` limits them.", "bytes"),
    "work-paused-partitions": _gauge("Partitions that wait because workers' buffers are full."),
    "work-oldest-seconds": _gauge(
        "Since the oldest of workers' unfinished records was read, attempts and waits in it; 0 "
        "where there is none. No offset after it is committed.",
        "s",
    ),
    "work-longest-seconds": _gauge("The longest attempt that is under way; 0 where none is.", "s"),
    "work-finished-total": _counter("Records that workers have finished, dead letters too."),
    "work-retry-total": _counter("Attempts of workers after a record's first that were due."),
    "work-dead-letter-total": _counter("Dead letters that workers have written."),
}
MEANINGS: dict[str, Meaning] = {**CONNECTIONS, **PRODUCER, **CONSUMER, **CLIENT, **WORK}


class MetricScope(NamedTuple):
    """What is told of one kind of thing."""

    group: str
    tags: tuple[str, ...]
    """Beside `client-id`."""
    names: tuple[str, ...]

    @property
    def meanings(self) -> dict[str, Meaning]:
        """Of its metrics, by name."""
        return {name: MEANINGS[name] for name in self.names}


def _sampled(*names: str) -> tuple[str, ...]:
    return tuple(name + end for name in names for end in ("-avg", "-max"))


_OF_TOPICS = ("record-send-total", "byte-total", "record-retry-total", "record-error-total")
_OF_PRODUCERS = tuple(n for n in PRODUCER if n not in ("byte-total", "record-acknowledged-total"))
_OF_NODES = (
    *("connection-count", "request-total", "response-total", "requests-in-flight"),
    *_sampled("request-latency"),
)
_OF_FETCHES = (
    *("fetch-total", *_sampled("fetch-latency"), *_sampled("fetch-throttle-time")),
    *("records-consumed-total", "bytes-consumed-total", "records-lag-max"),
)
_OF_GROUPS = (
    *("assigned-partitions", "commit-total", *_sampled("commit-latency"), "rebalance-total"),
    *("heartbeat-total", "heartbeat-response-time-max"),
    *(*_sampled("rebalance-latency"), "rebalance-latency-total", "last-rebalance-seconds-ago"),
)
_OURS_OF_CONSUMERS = (
    *("fetch-bytes-total", "fetch-bytes-waiting", "fetch-bytes-budget", "decode-time-total"),
    "batch-skipped-total",
)
_CLIENTS = {"producer": _OF_PRODUCERS, "consumer": ("last-poll-seconds-ago",), "admin-client": ()}
SCOPES: tuple[MetricScope, ...] = (
    *(MetricScope(f"{kind}-metrics", (), (*CONNECTIONS, *more)) for kind, more in _CLIENTS.items()),
    *(MetricScope(f"{kind}-node-metrics", ("node-id", "address"), _OF_NODES) for kind in _CLIENTS),
    MetricScope("producer-topic-metrics", ("topic",), _OF_TOPICS),
    MetricScope("consumer-fetch-manager-metrics", (), _OF_FETCHES),
    MetricScope(
        "consumer-fetch-manager-metrics",
        ("topic",),
        ("records-consumed-total", "bytes-consumed-total"),
    ),
    MetricScope("consumer-fetch-manager-metrics", ("topic", "partition"), ("records-lag",)),
    MetricScope("consumer-coordinator-metrics", (), _OF_GROUPS),
    MetricScope(OURS, ("topic", "partition"), ("committed-lag",)),
    MetricScope(OURS, (), (*CLIENT, "record-acknowledged-total", *_OURS_OF_CONSUMERS, *WORK)),
)
"""All that there can be: every metric of every client is in one of these."""
