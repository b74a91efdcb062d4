"""Report settings that a client accepts although they have no effect on it.

In: dotted names: settings of other libraries without a meaning here, and options of another kind of
client (consumer, producer, admin). Out: whether a setting has an effect; a log line if it has none
(DEBUG for `HARMLESS` settings, else WARNING); the error for an unknown setting. Must not: read or
show values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from odradek.common.errors import ConfigurationError
from odradek.common.options.migration_hints import CURES, CURES_OF_KIND
from odradek.common.options.option_aliases import ALIASES
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER

logger = logging.getLogger("odradek.options")

_SHARE = "share groups (KIP-932) aren't supported in this release"
_VERSIONS = "the client asks every broker for its API versions (KIP-35)"
_BUFFERS = "the operating system sizes the buffers of sockets"
_OFFSETS = "offsets are committed to the group's coordinator"
_RETRIES = "retry.backoff.ms sets the wait between failed refreshes"
COSTLY: dict[str, str] = {
    # Traffic between zones, memory, requests
    "partitioner.rack.aware": "records go to partitions in all racks, so traffic between zones "
    "isn't reduced",
    "receive.buffer.bytes": _BUFFERS,
    "send.buffer.bytes": _BUFFERS,
    "socket.receive.buffer.bytes": _BUFFERS,
    "socket.send.buffer.bytes": _BUFFERS,
    "socket.options": "the client sets the options of its sockets itself",
    "receive.message.max.bytes": "responses are limited by fetch.max.bytes",
    "queued.min.messages": "prefetched records are limited by bytes: fetch.max.bytes",
    "queued.max.messages.kbytes": "prefetched records are limited by fetch.max.bytes",
    "batch.num.messages": "batches are limited by bytes, not by records: batch.size; a full "
    "batch is sent at once",
    "topic.metadata.refresh.fast.interval.ms": _RETRIES,
    "fetch.error.backoff.ms": "retry.backoff.ms sets the wait after a failed fetch",
    "socket.timeout.ms": "request.timeout.ms sets the timeout of responses",
    "topic.metadata.propagation.max.ms": "the client waits for a missing topic; a producer for "
    "at most max.block.ms",
    # Durability, security, order, correctness
    "share.acknowledgement.mode": _SHARE,
    "share.acquire.mode": _SHARE,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "msg.order.cmp": "records are sent in the order of send()",
    "queuing.strategy": "records are sent in the order of send()",
    "internal.throw.on.fetch.stable.offset.unsupported": "offsets of open transactions are waited "
    "for if the broker supports it (Kafka 2.5), without an error otherwise",
    "bootstrap.controllers": "the client connects to brokers only: bootstrap.servers",
    "broker.address.family": "the client tries all addresses of a broker, IPv4 and IPv6",
    # Metrics, plugins
    "metric.reporters": "client.metrics() returns all metrics, PrometheusCollector and "
    "OpenTelemetryMetrics export them, and events.topic or events.dir export events",
    "kafka.client": "this client loads no third-party code",
}
"""Settings whose lack of effect may cost performance or safety, each with the reason."""
_AVERAGES = "averages cover the last 30 to 60 s, as with the defaults of Java's clients"
_LOG = "the client logs to logging.getLogger('odradek')"
_RECEIVED = "each response is received into a buffer of its own size"
HARMLESS: dict[str, str] = {
    # Java
    "auto.include.jmx.reporter": "there is no JVM",
    "metrics.num.samples": _AVERAGES,
    "metrics.sample.window.ms": _AVERAGES,
    "metrics.recording.level": "all metrics are recorded",
    "check.crcs": "the checksum of every batch is verified",
    "specific.avro.reader": "AvroDeserializer returns dicts",
    "bootstrap.resolve.timeout.ms": "names are resolved with each connection attempt, within "
    "socket.connection.setup.timeout.ms",
    "buffer.memory.allocation.strategy": "a batch takes memory as it grows",
    # librdkafka
    "debug": f"{_LOG}, each event at DEBUG",
    "log.level": _LOG,
    "log.queue": _LOG,
    "log.thread.name": _LOG,
    "log.connection.close": _LOG,
    "statistics.interval.ms": "call client.metrics(), health() or explain() when you need them; "
    "odradek.compat.confluent_kafka calls stats_cb",
    "builtin.features": "it describes a build of librdkafka",
    "enable.random.seed": "Python's random generator needs no seed",
    "enabled.events": "call client.listen(function) for all events",
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "api.version.fallback.ms": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "broker.address.ttl": "names are resolved again with each connection attempt",
    "socket.keepalive.enable": "TCP keepalive is on for every connection",
    "socket.nagle.disable": "Nagle's algorithm is off for every connection",
    "socket.max.fails": "the client closes a connection at its first failure and reconnects",
    "socket.blocking.max.ms": "no call of the client blocks in a socket",
    "message.copy.max.bytes": "records of any size are copied into their batch",
    "topic.metadata.refresh.fast.cnt": "refreshes are retried until one succeeds",
    "topic.metadata.refresh.sparse": "metadata covers only topics in use",
    "queue.buffering.backpressure.threshold": "linger.ms and batch.size decide when a batch is "
    "sent",
    "delivery.report.only.error": "pass on_delivery to send(), use the returned future, or neither",
    "sticky.partitioning.linger.ms": "records without a key change the partition with each batch",
    "fetch.queue.backoff.ms": "fetching resumes as soon as there is memory",
    "produce.offset.report": "the future of send() has the offset",
    "coordinator.query.interval.ms": "the client looks for a lost coordinator immediately",
    "group.protocol.type": "the protocol type of a consumer's group is always consumer",
    "reconnect.backoff.jitter.ms": "every wait varies by 20 %; reconnect.first.jitter.ms spreads "
    "the first connection attempts of many clients",
    "internal.termination.signal": "close() needs no signal",
    "consume.callback.max.messages": "max.poll.records limits the records of a call",
    # kafka-python and aiokafka
    "api.version": _VERSIONS,
    "api.version.auto.timeout.ms": _VERSIONS,
    "metrics.enabled": "all metrics are recorded",
    "metric.group.prefix": "metrics have the names of Java's clients",
    "selector": "the client chooses its selector",
    "loop": "asynchronous clients use the running event loop",
    "enable.incremental.fetch.sessions": "fetch sessions (KIP-227) are used if the broker "
    "supports them",
    "sock.chunk.bytes": _RECEIVED,
    "sock.chunk.buffer.count": _RECEIVED,
}
"""Settings whose lack of effect has no disadvantage, each with the reason."""
IN_FILES = frozenset(
    (
        *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
        *("interceptor.classes", "enable.partition.eof"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes"),
    )
)
"""Settings that are left out of a properties file with a WARNING; in a dict they are errors.

In a file, they are meant for a program with another client, which reads the file, too.
"""
OF_SERIALIZERS = frozenset(
    (
        *("auto.register.schemas", "use.latest.version", "normalize.schemas"),
        *("key.subject.name.strategy", "value.subject.name.strategy", "subject.name.strategy"),
    )
)
"""Settings of serializers, which Java's clients accept among client settings."""
OF_REGISTRIES = ("schema.registry.", "basic.auth.", "bearer.auth.")
"""Prefixes of the settings of a schema registry client."""
KINDS = frozenset((ADMIN, CONSUMER, PRODUCER))
_told: set[str] = set()
"""Names of settings that were already reported in this process."""


def reason(name: str) -> str | None:
    """Return why a setting of other clients has no effect here; None for all other settings."""
    if name in OF_SERIALIZERS:
        short = name.removeprefix("key.").removeprefix("value.")
        return (
            f"it belongs to a serializer: AvroSerializer(registry, schema, conf={{{short!r}: ...}})"
        )
    if name.startswith(OF_REGISTRIES):
        return (
            "it belongs to the registry client of a serializer: "
            f"value_serializer=AvroSerializer(SchemaRegistryClient({{{name!r}: ...}}), schema)"
        )
    if name.startswith("confluent."):
        return "it configures Confluent components that don't run in this client"
    return COSTLY.get(name) or HARMLESS.get(name)


def owners(name: str) -> frozenset[str]:
    """Return the kinds of clients that a setting concerns; empty if it concerns none."""
    option = OPTIONS.get(ALIASES.get(name, name))
    if option is not None:
        return option.clients
    return frozenset(kind for kind, cures in CURES_OF_KIND.items() if name in cures)


def in_words(kinds: Iterable[str]) -> str:
    """Return kinds of clients as a text, such as "consumers and producers"."""
    return " and ".join(f"{kind}s" for kind in sorted(kinds))


def has_effect(name: str, client: str | None) -> bool:
    """Return whether a setting has an effect on this kind of client (None: on any kind)."""
    if reason(name) is not None:
        return False
    kinds = owners(name)
    return not kinds or client is None or client in kinds


def unknown(name: str, client: str) -> ConfigurationError:
    """Return the error for an unknown setting; it names a replacement or a similar name."""
    text = f"unknown option {name!r} for {_one(client)}"
    if name in CURES:
        return ConfigurationError(f"{text}: {CURES[name]}")
    from difflib import get_close_matches  # imported late: few programs need it

    close = get_close_matches(name, [*OPTIONS, *ALIASES], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    if close and not has_effect(close[0], client):
        hint += f" That is an option of {in_words(owners(close[0]))}."
    return ConfigurationError(text + hint)


def _one(client: str) -> str:
    return f"{'an' if client.startswith('a') else 'a'} {client}"


def report(client: str, ignored: Iterable[str], others: Iterable[str] = ()) -> None:
    """Log settings without effect on this kind of client, each once per process.

    Options of other kinds of clients share one line, which also lists those of `others` (settings
    with an effect) that only some kinds have: several clients may share one dict.
    """
    fresh = [name for name in ignored if name not in _told]
    ours: list[str] = []
    for name in fresh:
        why = reason(name)
        if why is None:
            ours.append(name)
        else:
            level = logging.DEBUG if name in HARMLESS else logging.WARNING
            logger.log(level, "%s has no effect on %s: %s", name, _one(client), why)
    _told.update(fresh)
    if ours:
        theirs = [n for n in others if n not in _told and owners(n) and owners(n) < KINDS]
        _told.update(theirs)
        words = [f"{one} no effect on {_one(client)}, only on {kinds}" for one, kinds in _by(ours)]
        words += [f"{one} an effect only on {kinds}" for one, kinds in _by(theirs)]
        logger.warning("%s", "; ".join(words))


def _by(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Group options by the kinds of clients that have them; yield "a, b have" and these kinds."""
    by_kinds: dict[str, list[str]] = {}
    for name in names:
        by_kinds.setdefault(in_words(owners(name)), []).append(name)
    for kinds, found in by_kinds.items():
        yield f"{', '.join(found)} {'has' if len(found) == 1 else 'have'}", kinds
