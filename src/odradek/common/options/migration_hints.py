"""Suggest replacements for names from other Kafka clients.

In: names of settings, methods and classes of Java's client, librdkafka with confluent-kafka,
kafka-python and aiokafka. Out: the replacement of a name that isn't supported. Must not: repeat
names in `option_aliases` (another name of an option) or `ignored_settings` (accepted without
effect).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, Never, ParamSpec, TypeVar, cast

from odradek.common.errors import ArgumentError
from odradek.common.options.values import CONSUMER, PRODUCER

CO_COROUTINE = 0x80
"""Value of `inspect.CO_COROUTINE`; importing `inspect` would take a tenth of a client's start."""
P = ParamSpec("P")
R = TypeVar("R")
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
_PARTITIONER = "set partitioner to a name or a function"
CURES_OF_KIND: dict[str, dict[str, str]] = {
    PRODUCER: {
        **dict.fromkeys(("dr.cb", "dr.msg.cb", "on.delivery"), _DELIVERY),
        "queue.buffering.max.messages": _ROOM,
        "queue.buffering.max.kbytes": _ROOM,
        "compression.level": "set compression.zstd.level, or the level option of another codec",
        "partitioner.class": _PARTITIONER,
        "partitioner.cb": _PARTITIONER,
        "enable.gapless.guarantee": "the future of a failed record raises its error; use "
        "transactions to write all records or none",
        "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) isn't supported in this "
        "release",
    },
    CONSUMER: {
        **dict.fromkeys(
            ("offset.commit.cb", "default.offset.commit.callback", "on.commit"),
            "commit_async(offsets, callback)",
        ),
        "consumer.timeout.ms": "records(timeout=5.0) ends after 5 seconds without a record",
        "enable.partition.eof": "records(timeout=...) ends by itself; end_offsets() returns the "
        "end offsets",
        "enable.auto.offset.store": _LOOP,
        "auto.commit.enable": "use enable.auto.commit",
        "rebalance.cb": _HANDLERS,
        "consume.cb": "use poll() for records, poll_arrow() for columns",
        "topic.blacklist": "use a regular expression that excludes these topics: "
        "subscribe(pattern=...)",
        "rebalance.timeout.ms": "set max.poll.interval.ms, which also limits the time for a "
        "rebalance",
    },
}
"""By kind of client: settings that this kind doesn't support, and their replacements.

Other kinds of clients accept these settings without effect.
"""
CURES: dict[str, str] = {
    "stats.cb": _METRICS,
    **dict.fromkeys(("throttle.cb", "background.event.cb", "closesocket.cb"), _EVENTS),
    "opaque": _DELIVERY,
    **dict.fromkeys(("interceptors", "plugin.library.paths", "open.cb"), _NO_CODE),
    "key.serializer": _BYTES_OUT,
    "value.serializer": _BYTES_OUT,
    "key.deserializer": _BYTES_IN,
    "value.deserializer": _BYTES_IN,
    "error.cb": _RAISED,
    "log.cb": _LOG,
    "logger": _LOG,
    "oauthbearer.token.refresh.cb": "set sasl.oauthbearer.token.provider to a function",
    "default.topic.conf": "set topic options beside the other options",
    "interceptor.classes": "call your code around send() and poll(), or use "
    "client.listen(function) for events",
    "socket.cb": "set proxy.url to connect through a proxy",
    "connect.cb": "set proxy.url to connect through a proxy",
    "resolve.cb": "the system resolves names, again at each connection attempt",
    "ssl.engine.callback.data": "configure this in an ssl.SSLContext and set it as ssl.context",
    "sasl.kerberos.name": "set sasl.kerberos.service.name",
    **CURES_OF_KIND[PRODUCER],
    **CURES_OF_KIND[CONSUMER],
}
"""Replacements for settings that some kind of client doesn't support, by dotted name."""

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
"""Replacements for classes and constants of other clients, by name."""
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
"""Replacements for methods of other clients, by the class here that lacks the method."""
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
del METHODS["AsyncProducer"]["send_and_wait"]  # AsyncProducer has this method
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
_PASSED = "what you passed to send(): this object only has the position"
_BATCHES = "nothing, because only batches have checksums, and each is verified"
_COPY = "record._replace, which returns a changed copy"
METHODS["ConsumerRecord"] = {
    "error": "nothing, because poll() raises errors and returns only records",
    "checksum": _BATCHES,
    "latency": "nothing, because only producers measure it: producer.metrics()",
    "serialized_key_size": "len(record.key), if there is no key_deserializer",
    "serialized_value_size": "len(record.value), if there is no value_deserializer",
    "serialized_header_size": "sum(len(value or b'') for _, value in record.headers)",
    **dict.fromkeys(("set_headers", "set_key", "set_value"), _COPY),
    "timestampType": "timestamp_type",
    "leaderEpoch": "leader_epoch",
}
METHODS["RecordMetadata"] = {
    "error": "future.exception(), or the first argument of on_delivery",
    "checksum": _BATCHES,
    "latency": "producer.metrics(), which has request-latency-avg",
    "topic_partition": "TopicPartition(metadata.topic, metadata.partition)",
    **dict.fromkeys(("key", "value", "headers"), _PASSED),
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
"""Replacements for keyword arguments of other clients, by the method here."""


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

    # help() and editors show whether a function has to be awaited.
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
"""Modules of `odradek.compat`, by the name of another client that a program can import there."""


def missing_name(
    module: str, name: str, places: Mapping[str, str], *, imported: bool
) -> AttributeError | ImportError:
    """Return the error for an unknown name of a public module, with the name that may be meant.

    `places` contains the module of each public name. With `imported` (`from module import name`),
    the error is an ImportError, because Python would replace an AttributeError's text.
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


_NO_NEED = "nothing"
"""First word of a replacement text if no call is needed."""


def missing_method(of: object, name: str, cls: type | None = None) -> AttributeError:
    """Return the error for an unknown attribute of an object, with the replacement if known."""
    cls = cls or type(of)
    text = f"{cls.__name__!r} object has no attribute {name!r}"
    rows = (METHODS.get(one.__name__, {}) for one in cls.__mro__)
    cure = next((row[name] for row in rows if name in row), None)
    if cure is not None:
        without = cure.startswith(_NO_NEED)
        text += f", and needs none{cure.removeprefix(_NO_NEED)}" if without else f": write {cure}"
    return AttributeError(text, name=name, obj=of)


class _OfAnother:
    """Descriptor for the name of another client's method; reading it raises `missing_method`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, of: object, cls: type) -> Never:
        raise missing_method(of, self._name, cls)


def add_migration_hints(cls: type) -> None:
    """Let a class raise the error of `missing_method` for each of its names in `METHODS`.

    Under Python 3.11, a `__getattr__` would make reading a record's field four times slower.
    """
    names = METHODS[cls.__name__]
    added: dict[str, Any] = {name: _OfAnother(name) for name in names}
    added["__dir__"] = lambda of: [name for name in object.__dir__(of) if name not in names]
    for name, value in added.items():
        setattr(cls, name, value)
