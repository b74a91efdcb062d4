"""Describe every metric by name: its unit, whether it only grows, and its meaning.

Names, units and meanings are those of Kafka's Java clients if those have the metric; the texts
mention differences. Metrics of the group `odradek-metrics` are Odradek's own. Must not: read a
client.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.clients.metrics.metric import Kind

OURS = "odradek-metrics"
LATELY = "of the last 30 to 60 s"


class Meaning(NamedTuple):
    """Description of all metrics with one name."""

    unit: str
    kind: Kind
    text: str


def _counter(text: str, unit: str = "") -> Meaning:
    return Meaning(unit, "counter", text)


def _gauge(text: str, unit: str = "") -> Meaning:
    return Meaning(unit, "gauge", text)


def _lately(what: str, unit: str) -> dict[str, Meaning]:
    """Return the texts of an average and a maximum over the current and the last sample."""
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
    "connection-creation-total": _counter("Connections that were established (TCP, and TLS)."),
    "connection-close-total": _counter("Established connections that were closed."),
    "successful-authentication-total": _counter("Connections that authenticated with SASL."),
    "successful-reauthentication-total": _counter(
        "Reauthentications of connections in use (KIP-368)."
    ),
    "failed-authentication-total": _counter(
        "Connections that were closed because a broker refused their authentication."
    ),
    "request-total": _counter("Requests that were sent."),
    "response-total": _counter("Requests that were answered."),
    "requests-in-flight": _gauge("Requests in flight."),
    **_pairs(request_latency=("time from a request to its response", "ms")),
    "metadata-age": _gauge("Age of the metadata in use.", "s"),
}
PRODUCER = {
    "record-send-total": _counter("Records that were sent; a retried record counts each time."),
    "byte-total": _counter("Bytes of the batches that were sent, compressed.", "bytes"),
    "record-retry-total": _counter(
        "Records of batches that were retried; a record counts each time."
    ),
    "record-error-total": _counter(
        "Records that failed; their error says whether they may have been written."
    ),
    "batch-split-total": _counter("Batches that were split and sent again."),
    **_pairs(
        batch_size=("size of a batch that was sent, compressed", "bytes"),
        record_queue_time=("time from the creation of a batch until it was sent", "ms"),
    ),
    "records-per-request-avg": _gauge(f"The average number of records in a request, {LATELY}."),
    "produce-throttle-time-avg": _gauge(f"The average throttle time per write, {LATELY}.", "ms"),
    "produce-throttle-time-max": _gauge(f"The maximum throttle time of a write, {LATELY}.", "ms"),
    "buffer-total-bytes": _gauge("The value of `buffer.memory`.", "bytes"),
    "buffer-available-bytes": _gauge("Free bytes of `buffer.memory`.", "bytes"),
    "waiting-threads": _gauge("Calls that wait for free `buffer.memory`."),
    "record-acknowledged-total": _counter("Records that were written."),
}
CONSUMER = {
    "fetch-total": _counter("Fetches that were answered."),
    **_pairs(fetch_latency=("time from a fetch to its response", "ms")),
    "fetch-throttle-time-avg": _gauge(f"The average throttle time per fetch, {LATELY}.", "ms"),
    "fetch-throttle-time-max": _gauge(f"The maximum throttle time of a fetch, {LATELY}.", "ms"),
    "records-consumed-total": _counter("Records that were returned to the program."),
    "bytes-consumed-total": _counter(
        "Bytes of the batches of these records, as stored in the log: compressed (Java: "
        "decompressed).",
        "bytes",
    ),
    "records-lag": _gauge(
        "Offsets from the program's position to the end of the log, as of the last fetch."
    ),
    "committed-lag": _gauge(
        "Offsets from what the group has committed, as far as this client knows, to the log's end."
    ),
    "records-lag-max": _gauge("The largest current lag of all assigned partitions."),
    "last-poll-seconds-ago": _gauge(
        "Time since the program last polled; 0 while poll() runs.", "s"
    ),
    "commit-total": _counter("Commits that were answered."),
    **_pairs(
        commit_latency=("time from a commit to its response", "ms"),
        rebalance_latency=(
            "duration of a rebalance, from leaving the stable state until it was reached again",
            "ms",
        ),
    ),
    "heartbeat-total": _counter("Heartbeats that were answered."),
    "heartbeat-response-time-max": _gauge(
        f"The maximum time from a heartbeat to its response, {LATELY}.", "ms"
    ),
    "rebalance-latency-total": _counter("Total duration of all rebalances.", "ms"),
    "rebalance-total": _counter("Rebalances that this member completed."),
    "last-rebalance-seconds-ago": _gauge("Time since the end of the last rebalance.", "s"),
    "assigned-partitions": _gauge("Assigned partitions."),
    "fetch-bytes-total": _counter("Bytes of records that were received, compressed.", "bytes"),
    "fetch-bytes-waiting": _gauge(
        "Received bytes that are buffered until the program polls.", "bytes"
    ),
    "fetch-bytes-budget": _gauge("Limit of the buffered bytes (`fetch.max.bytes`).", "bytes"),
    "decode-time-total": _counter("Time spent on decoding, in the program's calls.", "ms"),
    "batch-skipped-total": _counter("Batches skipped by `on.corrupt.record=skip`."),
}
CLIENT = {
    "dial-total": _counter("Attempts to open a connection."),
    "dial-failed-total": _counter(
        "Connection attempts that failed, including names that didn't resolve."
    ),
    "address-backoff-count": _gauge("Addresses in a reconnect backoff after a failure."),
    "silence-total": _counter("Times that a broker didn't respond for too long."),
    "retry-total": _counter("Requests that were retried after a backoff."),
    "expired-total": _counter("Batches and calls that timed out."),
    "metadata-request-total": _counter("Requests for metadata."),
    **_pairs(metadata_latency=("time from a metadata request to its response", "ms")),
    "metadata-round-total": _counter("Passes over all addresses that can be asked for metadata."),
    "metadata-round-failed-total": _counter(
        "Passes over all addresses without any response; a backoff follows each."
    ),
    "hedged-request-total": _counter(
        "Metadata requests that were sent to another broker as well, because no response came."
    ),
    "rebootstrap-total": _counter("Rebootstraps: restarts from `bootstrap.servers`."),
    "outage-seconds": _gauge(
        "Duration of the current outage, since this client's first failure; 0 without one.", "s"
    ),
    "throttle-total": _counter("Responses to writes and fetches with a throttle time."),
    "throttle-time-total": _counter("Total throttle time of writes and fetches.", "ms"),
    "receive-buffer-bytes": _gauge("Receive buffers that are kept for large responses.", "bytes"),
}
WORK = {
    "work-running": _gauge("Records that workers are processing."),
    "work-waiting": _gauge("Records that workers have buffered, also for a retry."),
    "work-buffered-bytes": _gauge(
        "Bytes of the records that workers process or have buffered (limited by `buffer_bytes`).",
        "bytes",
    ),
    "work-paused-partitions": _gauge("Partitions paused because workers' buffers are full."),
    "work-oldest-seconds": _gauge(
        "Time since the oldest unfinished record was read, with all attempts and waits; 0 "
        "where there is none. No offset after it is committed.",
        "s",
    ),
    "work-longest-seconds": _gauge("Duration of the longest running attempt; 0 without one.", "s"),
    "work-finished-total": _counter("Records that workers have finished, including dead letters."),
    "work-retry-total": _counter("Retries of workers: attempts after a record's first."),
    "work-dead-letter-total": _counter("Dead letters that workers have written."),
}
MEANINGS: dict[str, Meaning] = {**CONNECTIONS, **PRODUCER, **CONSUMER, **CLIENT, **WORK}


class MetricScope(NamedTuple):
    """Metrics with the same group and tags."""

    group: str
    tags: tuple[str, ...]
    """Tags in addition to `client-id`."""
    names: tuple[str, ...]

    @property
    def meanings(self) -> dict[str, Meaning]:
        """Descriptions of its metrics, by name."""
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
"""All scopes: every metric of every client is in one of these."""
