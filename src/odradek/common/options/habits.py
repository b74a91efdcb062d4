"""What users of other Kafka clients type, and what to write here instead.

In: names of settings, methods and classes, as Java's client, librdkafka with confluent-kafka,
kafka-python and aiokafka have them. Out: whether a setting means nothing here, and the cure for
what isn't taken. Must not: repeat what `spellings` has, names that mean one of our options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from odradek.common.errors import ArgumentError
from odradek.common.options.values import ADMIN, CONSUMER, PRODUCER

CO_COROUTINE = 0x80
"""Of an `async def`, as `inspect` has it, which takes a tenth of a client's start to import."""
P = ParamSpec("P")
R = TypeVar("R")
OF_SERIALIZERS = frozenset(
    (
        *("auto.register.schemas", "use.latest.version", "normalize.schemas"),
        *("key.subject.name.strategy", "value.subject.name.strategy", "subject.name.strategy"),
    )
)
"""What a serializer is given, and Java's reads among a client's settings."""
IDLE = frozenset(
    (
        # Java: what its machine measures and buffers
        *("metric.reporters", "auto.include.jmx.reporter"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("check.crcs", "receive.buffer.bytes", "send.buffer.bytes", "bootstrap.controllers"),
        *("internal.throw.on.fetch.stable.offset.unsupported", "specific.avro.reader"),
        *("share.acknowledgement.mode", "share.acquire.mode", "bootstrap.resolve.timeout.ms"),
        *OF_SERIALIZERS,
        *("buffer.memory.allocation.strategy", "partitioner.rack.aware"),
        # librdkafka: its logs, its queues, its sockets, brokers of long ago
        *("debug", "log.level", "log.queue", "log.thread.name", "log.connection.close"),
        *("statistics.interval.ms", "builtin.features", "enable.random.seed", "enabled.events"),
        *("api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms"),
        *("broker.version.fallback", "broker.address.ttl", "broker.address.family"),
        *("socket.keepalive.enable", "socket.nagle.disable", "socket.max.fails"),
        *("socket.send.buffer.bytes", "socket.receive.buffer.bytes", "socket.blocking.max.ms"),
        *("socket.timeout.ms", "message.copy.max.bytes"),
        *("receive.message.max.bytes", "topic.metadata.refresh.interval.ms"),
        *("topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.fast.cnt"),
        *("topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms"),
        *("queued.min.messages", "queued.max.messages.kbytes"),
        *("queue.buffering.backpressure.threshold", "batch.num.messages"),
        *("delivery.report.only.error", "sticky.partitioning.linger.ms", "queuing.strategy"),
        *("fetch.queue.backoff.ms", "fetch.error.backoff.ms", "produce.offset.report"),
        *("coordinator.query.interval.ms", "group.protocol.type", "offset.store.method"),
        *("offset.store.path", "offset.store.sync.interval.ms", "msg.order.cmp"),
        *("reconnect.backoff.jitter.ms", "internal.termination.signal"),
        *("consume.callback.max.messages",),
        # kafka-python and aiokafka: sockets, brokers of long ago, the event loop
        *("socket.options", "api.version", "api.version.auto.timeout.ms", "bootstrap.timeout.ms"),
        *("metrics.enabled", "metric.group.prefix", "selector", "kafka.client", "loop"),
        *("enable.incremental.fetch.sessions", "sock.chunk.bytes", "sock.chunk.buffer.count"),
    )
)
"""Settings that are taken and change nothing: nothing that a program does depends on them here."""
INSTEAD = {
    "batch.num.messages": "batches are limited by bytes, not by records: batch.size; a full "
    "batch is sent at once",
    "queued.min.messages": "prefetched records are limited by bytes: fetch.max.bytes",
    "queued.max.messages.kbytes": "prefetched records are limited by fetch.max.bytes",
    "receive.message.max.bytes": "responses are limited by fetch.max.bytes",
    "message.copy.max.bytes": "records of any size are copied into their batch",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms sets the refresh interval",
    "topic.metadata.refresh.fast.interval.ms": "retry.backoff.ms sets the wait between failed "
    "refreshes",
    "topic.metadata.refresh.fast.cnt": "refreshes are retried until one succeeds",
    "topic.metadata.refresh.sparse": "metadata covers only topics in use",
    "topic.metadata.propagation.max.ms": "the client waits for a missing topic; a producer for "
    "at most max.block.ms",
    "socket.timeout.ms": "request.timeout.ms sets the timeout of responses",
    "socket.max.fails": "the client closes a connection at its first failure and reconnects",
    "socket.nagle.disable": "Nagle's algorithm is off for every connection",
    "fetch.error.backoff.ms": "retry.backoff.ms sets the wait after a failed fetch",
    "reconnect.backoff.jitter.ms": "every wait varies by 20 %; reconnect.first.jitter.ms spreads "
    "the first connection attempts of many clients",
    "statistics.interval.ms": "call client.metrics(), health() or explain() when you need them; "
    "odradek.compat.confluent_kafka calls stats_cb",
    "debug": "the client logs to logging.getLogger('odradek'), each event at DEBUG",
    "log.level": "the client logs to logging.getLogger('odradek')",
    "api.version.request": "the client asks every broker for its API versions (KIP-35)",
    "broker.version.fallback": "the client asks every broker for its API versions (KIP-35)",
    "api.version": "the client asks every broker for its API versions (KIP-35)",
    "delivery.report.only.error": "pass on_delivery to send(), use the returned future, or neither",
    "coordinator.query.interval.ms": "the client looks for a lost coordinator immediately",
    "enable.incremental.fetch.sessions": "fetch sessions (KIP-227) are used if the broker "
    "supports them",
    "metric.reporters": "client.metrics() returns all metrics, PrometheusCollector and "
    "OpenTelemetryMetrics of odradek.monitoring export them, and events.topic or events.dir export "
    "events",
    "check.crcs": "the checksum of every batch is verified",
}
"""Of those that somebody may miss: what there is here, in words that fit after a colon."""
IDLE_FOR = {
    "client.rack": (PRODUCER, ADMIN),
    "max.in.flight": (CONSUMER, ADMIN),
    "max.in.flight.requests.per.connection": (CONSUMER, ADMIN),
    "message.max.bytes": (CONSUMER, ADMIN),
    "retries": (ADMIN,),
}
"""The same for names that others' clients of these kinds have, and ours haven't."""
IDLE_IN_FILES = frozenset(
    (
        *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
        *("interceptor.classes", "enable.partition.eof"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes"),
    )
)
"""And for those of a properties file: what a program of another client reads there for itself."""
OF_REGISTRIES = ("schema.registry.", "basic.auth.", "bearer.auth.")
"""What settings of a registry's client begin with."""
IDLE_PREFIXES = (*OF_REGISTRIES, "confluent.")

_BYTES_OUT = "a function can't be an option; use Producer(key_serializer=..., value_serializer=...)"
_BYTES_IN = (
    "a function can't be an option; use Consumer(key_deserializer=..., value_deserializer=...)"
)
_EVENTS = "use client.listen(function) for all events, and client.explain() for the current state"
_METRICS = "use client.metrics(), at any time"
_RAISED = "the call that failed raises its error; use client.listen(function) for other errors"
_LOG = "the client logs to logging.getLogger('odradek')"
_LOOP = (
    "a loop over records() or batches() commits finished records; with enable.auto.commit=false, "
    "use commit(record)"
)
_DELIVERY = "use send(..., on_delivery=function) or the future that send() returns"
_ROOM = "use buffer.memory, which limits buffered records in bytes"
_HANDLERS = "subscribe(topics, on_assigned=..., on_revoked=...)"
_NO_CODE = "this client loads no third-party code"
CURES: dict[str, str] = {
    "stats.cb": _METRICS,
    **dict.fromkeys(("throttle.cb", "background.event.cb", "closesocket.cb"), _EVENTS),
    **dict.fromkeys(("dr.cb", "dr.msg.cb", "on.delivery", "opaque"), _DELIVERY),
    **dict.fromkeys(
        ("offset.commit.cb", "default.offset.commit.callback", "on.commit"),
        "commit_async(offsets, callback)",
    ),
    **dict.fromkeys(("interceptors", "plugin.library.paths", "open.cb"), _NO_CODE),
    "key.serializer": _BYTES_OUT,
    "value.serializer": _BYTES_OUT,
    "key.deserializer": _BYTES_IN,
    "value.deserializer": _BYTES_IN,
    "consumer.timeout.ms": "records(timeout=5.0) ends after 5 seconds without a record",
    "enable.partition.eof": "records(timeout=...) ends by itself; end_offsets() returns the end "
    "offsets",
    "enable.auto.offset.store": _LOOP,
    "auto.commit.enable": "use enable.auto.commit",
    "queue.buffering.max.messages": _ROOM,
    "queue.buffering.max.kbytes": _ROOM,
    "compression.level": "set compression.zstd.level, or the level option of another codec",
    "error.cb": _RAISED,
    "log.cb": _LOG,
    "logger": _LOG,
    "rebalance.cb": _HANDLERS,
    "consume.cb": "use poll() for records, poll_arrow() for columns",
    "partitioner.class": "set partitioner to a name or a function",
    "partitioner.cb": "set partitioner to a name or a function",
    "oauthbearer.token.refresh.cb": "set sasl.oauthbearer.token.provider to a function",
    "default.topic.conf": "set topic options beside the other options",
    "topic.blacklist": "use a regular expression that excludes these topics: "
    "subscribe(pattern=...)",
    "interceptor.classes": "call your code around send() and poll(), or use "
    "client.listen(function) for events",
    "socket.cb": "set proxy.url to connect through a proxy",
    "connect.cb": "set proxy.url to connect through a proxy",
    "resolve.cb": "the system resolves names, again at each connection attempt",
    "ssl.engine.callback.data": "configure this in an ssl.SSLContext and set it as ssl.context",
    "enable.gapless.guarantee": "the future of a failed record raises its error; use "
    "transactions to write all records or none",
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) isn't supported in this "
    "release",
    "sasl.kerberos.name": "set sasl.kerberos.service.name",
    "rebalance.timeout.ms": "set max.poll.interval.ms, which also limits the time for a rebalance",
}
"""What isn't taken, in dots; what is written instead."""

_PRODUCER = "Producer(config)"
_LOOP_PRODUCER = "AsyncProducer(config)"
_CONSUMER = "Consumer(config), then subscribe([topic]) or assign([TopicPartition(topic, 0)])"
_LOOP_CONSUMER = f"Async{_CONSUMER}"
_ADMIN = "Admin(config)"
CLASSES: dict[str, str] = {
    "KafkaProducer": _PRODUCER,
    "AIOKafkaProducer": _LOOP_PRODUCER,
    "SerializingProducer": _PRODUCER,
    "KafkaConsumer": _CONSUMER,
    "AIOKafkaConsumer": _LOOP_CONSUMER,
    "DeserializingConsumer": _CONSUMER,
    "AdminClient": _ADMIN,
    "KafkaAdminClient": _ADMIN,
    "AIOKafkaAdminClient": "AsyncAdmin(config)",
    "KafkaException": "KafkaError, the base class of all errors of this package",
    "Message": "ConsumerRecord, a named tuple",
    "OffsetAndMetaData": "OffsetAndMetadata",
    "ConsumerRebalanceListener": _HANDLERS,
    "OFFSET_BEGINNING": "consumer.seek_to_beginning(partitions)",
    "OFFSET_END": "consumer.seek_to_end(partitions)",
}
"""Names of other clients' modules."""
_NOTHING = "nothing, because callbacks run in the producer's thread"
_LISTS = "Admin(config).list_topics()"
METHODS: dict[str, dict[str, str]] = {
    "Producer": {
        "produce": "send(topic, value, key, on_delivery=function)",
        "send_and_wait": "send(topic, value, key).result(timeout)",
        "poll": _NOTHING,
        "list_topics": _LISTS,
        "bootstrap_connected": "health()",
        "create_batch": "send_many(topic, values, keys)",
        "send_batch": "send_many(topic, values, keys)",
        "begin": "begin_transaction()",
        "start": "nothing, because the client connects by itself",
        "stop": "close(timeout)",
    },
    "Consumer": {
        "consume": "poll(timeout, max_records), or poll_arrow() for columns",
        "getone": "poll(timeout, max_records=1)",
        "getmany": "poll(timeout, max_records)",
        "store_offsets": _LOOP,
        "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
        "partitions_for_topic": "partitions_for(topic)",
        "topics": "list_topics()",
        "memberid": "group_metadata().member_id",
        "consumer_group_metadata": "group_metadata()",
        "offsets_for_timestamps": "offsets_for_times({partition: milliseconds})",
        "highwater": "high_watermarks()[partition]",
        "current_lag": "lag(partition)",
        "unassign": "assign([])",
        "incremental_assign": "assign(partitions), with the complete list",
        "incremental_unassign": "assign(partitions), with the remaining partitions",
        "bootstrap_connected": "health()",
        "start": "nothing, because the client connects by itself",
        "stop": "close(timeout)",
    },
    "RecordFuture": {
        "get": "result(timeout), in seconds",
        "add_callback": "add_done_callback(function)",
        "add_errback": "add_done_callback(function), and exception() in it",
        "succeeded": "done() and exception() is None",
        "failed": "done() and exception() is not None",
        "is_done": "done()",
    },
    "Admin": {
        "alter_configs": "incremental_alter_configs({resource: [AlterConfigOp(name, value)]})",
        "alter_consumer_group_offsets": "alter_group_offsets(group, offsets)",
        "api_versions": "describe_api_versions()",
        "delete_consumer_groups": "delete_groups(groups)",
        "describe_groups": "describe_consumer_groups(groups)",
        "describe_topic": "describe_topics(topics)",
        "describe_topic_partitions": "describe_topics(topics)",
        "list_consumer_group_offsets": "list_group_offsets(groups)",
        "list_consumer_groups": "list_groups(protocol_types=['consumer'])",
        "list_partition_offsets": "list_offsets({partition: 'LATEST'})",
        "poll": "nothing, because calls block until they are done",
        "remove_members_from_consumer_group": "remove_group_members(group, instance_ids)",
        "reset_configs": "incremental_alter_configs, with AlterConfigOp(name, None, 'DELETE')",
        "reset_group_offsets": "list_offsets(specs), then alter_group_offsets(group, offsets)",
        "wait_for_topics": "nothing, because create_topics() waits until the topics have leaders",
    },
}
"""Methods of other clients, by our classes."""
_STOP = "await close(timeout)"
METHODS["AsyncProducer"] = {
    **METHODS["Producer"],
    "produce": "await send(topic, value, key, on_delivery=function)",
    "poll": "nothing, because callbacks run in the event loop",
    "list_topics": "await AsyncAdmin(config).list_topics()",
    "create_batch": "await send_many(topic, values, keys)",
    "send_batch": "await send_many(topic, values, keys)",
    "begin": "await begin_transaction()",
    "stop": _STOP,
}
del METHODS["AsyncProducer"]["send_and_wait"]  # this one has it
METHODS["AsyncConsumer"] = {
    **METHODS["Consumer"],
    "consume": "await poll(timeout, max_records), or await poll_arrow() for columns",
    "getone": "await poll(timeout, max_records=1), or async for record in consumer",
    "getmany": "await poll(timeout, max_records), which returns one list",
    "get_watermark_offsets": "await beginning_offsets([partition]), await end_offsets([partition])",
    "partitions_for_topic": "await partitions_for(topic)",
    "topics": "await list_topics()",
    "offsets_for_timestamps": "await offsets_for_times({partition: milliseconds})",
    "highwater": "await end_offsets([partition]), or lag(partition)",
    "stop": _STOP,
}
METHODS["AsyncAdmin"] = {
    "describe_topic": "await describe_topics(names)",
    "poll": "nothing, because calls are awaited",
    "start": METHODS["Producer"]["start"],
    "stop": _STOP,
}
METHODS["DeliveryFuture"] = {
    "get": "await future, or asyncio.wait_for with a timeout",
    **{name: f"(await future).{name}" for name in ("topic", "partition", "offset")},
}
KEYWORDS: dict[str, dict[str, str]] = {
    "commit": {
        "message": "commit(record)",
        "asynchronous": "commit_async(offsets, callback), which doesn't wait",
    },
    "subscribe": {
        "on_assign": "on_assigned=function(consumer, partitions)",
        "on_revoke": "on_revoked=function(consumer, partitions)",
    },
    "close": {"autocommit": "close() with the option enable.auto.commit"},
    "send_offsets_to_transaction": {
        "positions": "send_offsets_to_transaction(offsets, consumer.group_metadata())",
        "group_metadata": "group=consumer.group_metadata()",
        "group_id": "group=consumer.group_metadata()",
    },
}
"""Keywords of theirs, by our method."""


def is_idle(name: str, client: str | None) -> bool:
    """Return whether a setting is accepted without effect, by one kind of client or by all."""
    return name in IDLE or name.startswith(IDLE_PREFIXES) or client in IDLE_FOR.get(name, ())


def belongs(name: str) -> str | None:
    """Return where to set an option of Java's serializers instead; None for other options."""
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
    return None


def with_keywords(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method so that another client's keyword raises an error with its replacement."""
    name, cures = method.__name__, KEYWORDS[method.__name__]

    def look(keywords: dict[str, Any]) -> None:
        for keyword in keywords.keys() & cures.keys():
            raise ArgumentError(f"{name}() has no argument {keyword}: write {cures[keyword]}")

    @wraps(method)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        look(keywords)
        return method(*arguments, **keywords)

    @wraps(method)
    async def awaited(*arguments: P.args, **keywords: P.kwargs) -> Any:
        look(keywords)
        return await cast("Any", method(*arguments, **keywords))

    # help() and editors say of a function whether it is awaited.
    flags = cast("FunctionType", method).__code__.co_flags
    return cast("Callable[P, R]", awaited) if flags & CO_COROUTINE else call


_STAY = (
    "; or keep the program as it is and import the name from odradek: `from odradek.compat.{} "
    "import {}`"
)
_COMPAT = {
    **dict.fromkeys(
        ("AIOKafkaProducer", "AIOKafkaConsumer", "ConsumerRebalanceListener"), "aiokafka"
    ),
    "AIOKafkaAdminClient": "aiokafka.admin",
    **dict.fromkeys(
        (
            *("SerializingProducer", "DeserializingConsumer", "KafkaException", "Message"),
            *("OFFSET_BEGINNING", "OFFSET_END"),
        ),
        "confluent_kafka",
    ),
    "AdminClient": "confluent_kafka.admin",
}
"""Where other clients' names are, for programs that keep them."""


def missing_name(
    module: str, name: str, places: Mapping[str, str], *, imported: bool
) -> AttributeError | ImportError:
    """Return the error for an unknown name of a public module, with the name that may be meant.

    `places` has the module of each public name. For `from module import name` the error is an
    ImportError, because Python replaces the text of an AttributeError there.
    """
    from difflib import get_close_matches  # only here: most clients start without it

    text = f"module {module!r} has no attribute {name!r}"
    if name in CLASSES:
        stay = _STAY.format(_COMPAT[name], name) if name in _COMPAT else ""
        text = f"{name} is a name of another client: write {CLASSES[name]}{stay}"
        text += " (docs/switching.md)"
    elif close := get_close_matches(name, places, n=1):
        text += f"; did you mean {places[close[0]]}.{close[0]}?"
    return ImportError(text, name=name) if imported else AttributeError(text, name=name)


def missing_method(of: object, name: str) -> AttributeError:
    """Return the error for an unknown attribute of an object, with the replacement if known."""
    cls = type(of).__name__
    text = f"{cls!r} object has no attribute {name!r}"
    cure = METHODS.get(cls, {}).get(name)
    return AttributeError(f"{text}: write {cure}" if cure else text, name=name, obj=of)
