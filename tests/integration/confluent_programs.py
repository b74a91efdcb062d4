"""Small programs for confluent-kafka, also run with another library.

In: the library (a module with confluent-kafka's names), a cluster, a function that records values.
Out: what a program observes, as plain values: names of error codes, not messages. Must not: record
anything that depends on timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from odradek.testing import FakeCluster

Note = Callable[..., None]
Program = Callable[[Any, FakeCluster, Note], None]
PATIENCE = 20.0
TOPICS = {"flights": 2, "counts": 1}


def trying(note: Note, what: str, call: Callable[[], Any]) -> Any:
    """Call a function and note the result or its type, or the error's type and code."""
    try:
        found = call()
    except Exception as error:
        code = [a.name() for a in error.args if hasattr(a, "txn_requires_abort")]
        note(what, type(error).__name__, *code)
        return None
    note(what, found if isinstance(found, int | str | bool | None) else type(found).__name__)
    return found


def seen(message: Any) -> tuple[Any, ...] | None:
    """Return the fields of a message, or of its error."""
    if message is None:
        return None
    error = message.error()
    if error is not None:
        return message.topic(), message.partition(), message.offset(), error.name()
    return (
        *(message.topic(), message.partition(), message.offset(), message.key(), message.value()),
        *(message.headers(), message.timestamp()[0], len(message)),
    )


def written(library: Any, cluster: FakeCluster, count: int, **keywords: Any) -> None:
    """Write messages 0 to `count` - 1 to the first partition of flights; keywords override it."""
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        producer.produce("flights", str(number), **{"partition": 0, **keywords})
    assert producer.flush(PATIENCE) == 0


def consumer(library: Any, cluster: FakeCluster, **settings: Any) -> Any:
    names = {name.replace("__", "."): value for name, value in settings.items()}
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "board",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **names,
    }
    return library.Consumer(config)


def read(client: Any, count: int) -> list[Any]:
    """Return the next `count` messages, errors included."""
    found: list[Any] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        message = client.poll(0.5)
        if message is not None:
            found.append(message)
    return found


def places(partitions: Any) -> list[tuple[Any, ...]]:
    """Return topic, partition, offset and metadata of each partition, sorted."""
    return sorted((p.topic, p.partition, p.offset, p.metadata) for p in partitions)


def numbers(partitions: Any) -> list[tuple[str, int]]:
    return sorted((p.topic, p.partition) for p in partitions)


# Producers


def delivery_reports(library: Any, cluster: FakeCluster, note: Note) -> None:
    def report(error: Any, message: Any) -> None:
        note("report", error, seen(message), message.latency() > 0)

    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    headers: Any = [("a", "text"), ("b", b"bytes"), ("c", None)]
    for number in range(3):
        producer.produce(
            "flights",
            value=f"value {number}",
            key=b"key",
            partition=1,
            on_delivery=report,
            timestamp=1000 + number,
            headers=headers if number else {"one": "x"},
        )
    note(len(producer), bool(producer))
    note(producer.flush(PATIENCE), len(producer))
    producer.produce("flights", partition=0, callback=report)
    note(producer.poll(PATIENCE), producer.poll(0))
    producer.produce("flights", "unreported")
    note(producer.flush())
    note([row[1:] for row in cluster.records("flights", 1)][:3])
    note(producer.close(), producer.close())
    for call in (lambda: producer.produce("flights"), lambda: producer.poll(0), producer.flush):
        trying(note, "closed", call)
    note(len(producer))


def keys_choose_partitions(library: Any, cluster: FakeCluster, note: Note) -> None:
    for partitioner in (None, "consistent", "murmur2", "murmur2_random", "fnv1a"):
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        if partitioner is not None:
            config["partitioner"] = partitioner
        producer, found = library.Producer(config), list[tuple[Any, Any]]()
        for number in range(40):
            producer.produce(
                "flights",
                b"v",
                f"key {number}",
                on_delivery=lambda _, m, found=found: found.append((m.key(), m.partition())),
            )
        producer.flush(PATIENCE)
        note(partitioner, sorted(found))


def produce_rejects_wrong_arguments(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "message.max.bytes": 5000}
    )
    wrong: list[dict[str, Any]] = [
        {"topic": 3},
        {"topic": "flights", "value": 3},
        {"topic": "flights", "key": 3.5},
        {"topic": "flights", "headers": [("a", 3)]},
        {"topic": "flights", "headers": {"a": 3}},
        {"topic": "flights", "headers": "text"},
        {"topic": "flights", "value": b"x" * 6000},
    ]
    for arguments in wrong:
        trying(note, str(arguments)[:60], partial(producer.produce, **arguments))
    trying(note, "no topic", lambda: producer.produce())
    trying(note, "poll", lambda: producer.poll("soon"))
    for name, call in (
        ("init", lambda: producer.init_transactions(1)),
        ("begin", lambda: producer.begin_transaction()),
        ("commit", lambda: producer.commit_transaction(1)),
        ("abort", lambda: producer.abort_transaction(1)),
    ):
        trying(note, name, call)
    note(len(producer), producer.flush(PATIENCE))


def a_topic_that_does_not_exist(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 1000}
    )
    producer.produce(
        "nowhere", b"v", b"k", on_delivery=lambda e, m: note(e.name(), seen(m), m.key(), m.value())
    )
    note(producer.flush(0.1))
    note(producer.flush(PATIENCE))


def no_broker_accepts_records(library: Any, cluster: FakeCluster, note: Note) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 1500}
    producer = library.Producer(config)
    producer.produce("counts", b"first")
    note(producer.flush(PATIENCE))
    cluster.pause(1)
    producer.produce("counts", b"second", on_delivery=lambda e, m: note(e.name(), m.error() == e))
    note(producer.flush(PATIENCE))
    cluster.resume(1)


def a_brokers_error_is_reported(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for name in ("INVALID_RECORD", "MESSAGE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED"):
        cluster.refuse("Produce", name, 1)
        producer.produce(
            "counts", name, on_delivery=lambda e, m: note(e.name(), e.code(), e.fatal(), m.value())
        )
        note(producer.flush(PATIENCE))


def a_callback_raises(library: Any, cluster: FakeCluster, note: Note) -> None:
    def report(_: Any, message: Any) -> None:
        note("report", message.value())
        raise LookupError("of the program's own")

    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("counts", b"one", on_delivery=report)
    trying(note, "poll", lambda: producer.poll(PATIENCE))
    note(len(producer), producer.flush(PATIENCE))
    producer.produce("counts", b"two", on_delivery=report)
    trying(note, "flush", lambda: producer.flush(PATIENCE))
    note(len(producer))


def a_full_queue(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "queue.buffering.max.messages": 5,
            "linger.ms": 60000,
            "message.timeout.ms": 300000,
        }
    )
    for number in range(7):
        trying(note, str(number), partial(producer.produce, "counts", str(number)))
    note(len(producer), producer.flush(PATIENCE), len(producer))
    trying(note, "again", lambda: producer.produce("counts", b"again"))
    note(producer.flush(PATIENCE), len(cluster.records("counts")))


def purged_messages(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("nowhere", b"v", on_delivery=lambda e, m: note(e.name(), m.value()))
    note(len(producer))
    producer.purge()
    note(producer.flush(PATIENCE))
    producer.produce("counts", b"later", on_delivery=lambda e, m: note(e, m.value()))
    note(producer.flush(PATIENCE))


def purged_messages_that_were_sent(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    before = cluster.requests()["Produce"]
    cluster.delay("Produce", 2 * PATIENCE)
    producer.produce("counts", b"v", on_delivery=lambda e, m: note(e.name(), m.value()))
    end = time.monotonic() + PATIENCE
    while cluster.requests()["Produce"] == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    producer.purge()
    note(producer.flush(PATIENCE))
    cluster.heal()


def reports_of_errors_only(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "delivery.report.only.error": True,
            "on_delivery": lambda e, m: note("default", e.name(), m.value()),
        }
    )
    producer.produce("counts", b"well")
    note(producer.flush(PATIENCE))
    cluster.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED", 1)
    producer.produce("counts", b"ill")
    note(producer.flush(PATIENCE))


def batches_of_messages(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    messages: list[dict[str, Any]] = [
        {"value": "one", "key": "k"},
        {"value": b"two"},
        {"value": "three", "callback": lambda e, m: note("own", e, m.value(), m.partition())},
    ]

    def report(error: Any, message: Any) -> None:
        note("all", error, message.value())

    note(producer.produce_batch("flights", messages, 0, on_delivery=report))
    note(producer.flush(PATIENCE), len(cluster.records("flights", 0)))
    for wrong in ("text", ["text"], [{"value": 3}], [{"key": 3}], [{"partition": "x"}]):
        trying(note, "wrong", partial(producer.produce_batch, "flights", wrong))
    for headers in (["text"], [("a",)], [("a", b"b", b"c")], [3], [("a", 3)]):
        trying(note, "headers", partial(producer.produce, "flights", headers=headers))
    for partition in ("x", None, 1.5):
        trying(note, "partition", partial(producer.produce, "flights", partition=partition))


def transactions(library: Any, cluster: FakeCluster, note: Note) -> None:
    def report(error: Any, message: Any) -> None:
        note("report", error and error.name(), message.value())

    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "clerk"}
    producer = library.Producer(config)
    trying(note, "begin too early", producer.begin_transaction)
    trying(note, "produce too early", lambda: producer.produce("counts", b"early"))
    note(producer.init_transactions(PATIENCE))
    trying(note, "produce outside", lambda: producer.produce("counts", b"outside"))
    producer.begin_transaction()
    trying(note, "begin twice", producer.begin_transaction)
    producer.produce("counts", b"committed", on_delivery=report)
    note(producer.commit_transaction(PATIENCE), len(producer))
    trying(note, "commit outside", lambda: producer.commit_transaction(1))
    producer.begin_transaction()
    producer.produce("counts", b"aborted", on_delivery=report)
    note(producer.abort_transaction(PATIENCE), len(producer))
    producer.begin_transaction()
    producer.produce("counts", b"committed, too")
    note(producer.commit_transaction())
    reader = consumer(library, cluster)
    reader.subscribe(["counts"])
    note([m.value() for m in read(reader, 2)])
    reader.close()


def offsets_in_a_transaction(library: Any, cluster: FakeCluster, note: Note) -> None:
    written(library, cluster, 5)
    reader = consumer(library, cluster)
    reader.subscribe(["flights"])
    read(reader, 3)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "clerk"}
    producer = library.Producer(config)
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("counts", b"of three")
    positions = reader.position(reader.assignment())
    note(
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), PATIENCE)
    )
    note(producer.commit_transaction(PATIENCE))
    note(places(reader.committed(reader.assignment(), PATIENCE)))
    producer.begin_transaction()
    wrong = "what is no metadata"
    trying(note, "wrong", lambda: producer.send_offsets_to_transaction(positions, wrong))
    producer.abort_transaction(PATIENCE)
    reader.close()


def a_fenced_producer(library: Any, cluster: FakeCluster, note: Note) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "clerk"}
    first, second = library.Producer(config), library.Producer(config)
    first.init_transactions(PATIENCE)
    first.begin_transaction()
    first.produce("counts", b"lost")
    first.flush(PATIENCE)
    second.init_transactions(PATIENCE)
    try:
        first.commit_transaction(PATIENCE)
    except library.KafkaException as error:
        found = error.args[0]
        note(found.name(), found.fatal(), found.retriable(), found.txn_requires_abort())
    second.begin_transaction()
    second.produce("counts", b"kept")
    note(second.commit_transaction(PATIENCE))
    with suppress(library.KafkaException):  # confluent-kafka reports here, too, that it is fenced
        first.close()
    second.close()


def no_broker_answers(library: Any, cluster: FakeCluster, note: Note) -> None:
    said: set[str] = set()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    admins = import_module(f"{library.__name__}.admin")
    config = {
        **servers,
        "error_cb": lambda error: said.add(error.name()),
        "message.timeout.ms": 2000,
    }
    cluster.close()
    producer = library.Producer(config)
    producer.produce("flights", on_delivery=lambda e, m: note(e.name(), m.topic(), m.partition()))
    until = time.monotonic() + PATIENCE
    while (len(producer) or len(said) < 2) and time.monotonic() < until:
        producer.poll(0.1)
    note(sorted(said))
    reader, here = library.Consumer({**servers, "group.id": "g"}), ("flights", 0)
    admin = admins.AdminClient({**servers, "socket.timeout.ms": 300})
    for name, call in (
        ("list_topics", lambda: producer.list_topics(timeout=0.3)),
        ("of all", lambda: admin.list_topics(timeout=0.3)),
        ("committed", lambda: reader.committed([library.TopicPartition(*here)], 0.3)),
        ("delete", lambda: admin.delete_topics(["flights"])["flights"].result(PATIENCE)),
        ("soon", lambda: admin.delete_topics(["t"], request_timeout=0.3)["t"].result(PATIENCE)),
    ):
        trying(note, name, call)
    reader.close()


# All clients


def _consumer_of(library: Any, config: dict[str, Any]) -> None:
    library.Consumer(config).close()


def configurations(library: Any, cluster: FakeCluster, note: Note) -> None:
    server = {"bootstrap.servers": cluster.bootstrap_servers}
    good: list[dict[str, Any]] = [
        {},
        {"acks": "1", "linger.ms": "7", "retries": 3},
        {"default.topic.config": {"request.required.acks": -1}},
        {"compression.codec": "gzip", "compression.level": 5, "batch.num.messages": 7},
        {"error_cb": print, "logger": None, "statistics.interval.ms": 0, "stats_cb": print},
        {"security.protocol": "plaintext", "client.id": "mine", "debug": "msg"},
        {"auto.offset.reset": "earliest", "session.timeout.ms": 6000},
        {"enable.idempotence": "false", "max.in.flight": 100},
    ]
    wrong: list[dict[Any, Any]] = [
        {"no.such.setting": 1},
        {"linger_ms": 1},
        {3: 4},
        {"linger.ms": "soon"},
        {"message.timeout.ms": -3},
        {"compression.type": "bzip"},
        {"partitioner": "nearest"},
        {"enable.idempotence": "maybe"},
        {"enable.idempotence": True, "acks": 1},
        {"transactional.id": "t", "acks": 0},
        {"error_cb": 3},
        {"stats_cb": None},
        {"oauth_cb": 4},
        {"throttle_cb": 3},
        {"on_delivery": 3},
        {"dr_cb": print},
    ]
    for config in (*good, *wrong):
        trying(note, str(list(config)), partial(library.Producer, {**server, **config}))
    for config in (
        {},
        {"no.such.setting": 1},
        {"auto.offset.reset": "somewhere"},
        {"on_commit": 4},
        {"on_delivery": print},
        {"enable.auto.commit": "maybe"},
        {"linger.ms": 3},
        {"auto.offset.reset": "smallest"},
        {"session.timeout.ms": 100},
        {"auto.offset.reset": "end", "isolation.level": "read_uncommitted"},
    ):
        trying(
            note,
            str(list(config)),
            partial(_consumer_of, library, {**server, "group.id": "g", **config}),
        )
    trying(note, "no group", lambda: library.Consumer(server))
    trying(note, "no dict", lambda: library.Producer("localhost"))
    trying(note, "nothing", lambda: library.Producer())
    trying(note, "keywords", lambda: library.Producer(server, **{"linger.ms": 3}))
    trying(note, "keywords alone", lambda: library.Producer(**server))


def metadata(library: Any, cluster: FakeCluster, note: Note) -> None:
    producer = library.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for asked in ("flights", "nowhere", None):
        found = producer.list_topics(asked, timeout=PATIENCE)
        note(found.cluster_id, found.controller_id, sorted(found.brokers), str(found))
        for name, topic in sorted(found.topics.items()):
            if name.startswith("__"):
                continue
            parts = [(p.id, p.leader, p.replicas, p.isrs) for p in topic.partitions.values()]
            note(name, str(topic), topic.error and topic.error.name(), sorted(parts))
    note(producer.cluster_id(PATIENCE))
    producer.close()
    trying(note, "closed", producer.list_topics)


def serializers(library: Any, cluster: FakeCluster, note: Note) -> None:
    of = import_module(f"{library.__name__}.serialization")
    errors = import_module(f"{library.__name__}.error")
    server = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = library.SerializingProducer(
        {
            **server,
            "key.serializer": of.IntegerSerializer(),
            "value.serializer": of.StringSerializer("utf_8"),
        }
    )
    producer.produce("counts", key=7, value="sieben", on_delivery=lambda e, m: note(e, m.key()))
    producer.produce("counts", key=None, value=None)
    note(producer.flush(PATIENCE))
    for arguments in ({"key": "seven"}, {"key": 7, "value": 3}):
        trying(note, str(arguments), partial(producer.produce, "counts", **arguments))
    reader = library.DeserializingConsumer(
        {
            **server,
            "group.id": "board",
            "auto.offset.reset": "earliest",
            "key.deserializer": of.IntegerDeserializer(),
            "value.deserializer": lambda value, ctx: (value, ctx.topic, str(ctx.field)),
        }
    )
    reader.subscribe(["counts"])
    note([(m.key(), m.value(), m.deserialized_key()) for m in read(reader, 2)])
    plain = library.Producer(server)
    plain.produce("counts", b"value", b"no integer")
    plain.flush(PATIENCE)
    try:
        read(reader, 1)
    except errors.KeyDeserializationError as error:
        note(error.name, error.code, error.kafka_message.key(), type(error.exception).__name__)
    trying(note, "consume", lambda: reader.consume(1, 0))
    reader.close()


def administration(library: Any, cluster: FakeCluster, note: Note) -> None:
    of = import_module(f"{library.__name__}.admin")
    admin = of.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = [of.NewTopic("arrivals", 3, 1), of.NewTopic("flights", 1, 1)]
    futures = admin.create_topics(wanted, request_timeout=PATIENCE)
    for topic in ("arrivals", "flights"):
        trying(note, f"create {topic}", futures[topic].result)
    checked = admin.create_topics([of.NewTopic("checked", 1, 1)], validate_only=True)
    trying(note, "check", checked["checked"].result)
    names = library.TopicCollection(["arrivals", "nowhere"])
    described = admin.describe_topics(names, request_timeout=PATIENCE)
    trying(note, "nowhere", described["nowhere"].result)
    found = described["arrivals"].result()
    note(found.name, found.is_internal, len(str(found.topic_id)), found.authorized_operations)
    for partition in found.partitions:
        nodes = [(n.id, n.id_string, n.host) for n in (partition.leader, *partition.replicas)]
        note(partition.id, nodes, [n.id for n in partition.isr])
    whole = admin.describe_cluster(request_timeout=PATIENCE).result()
    note(whole.cluster_id, whole.controller.id, [n.id for n in whole.nodes])
    note(sorted(admin.list_topics(timeout=PATIENCE).topics), str(wanted[0]), wanted[0] == wanted[1])
    gone = admin.delete_topics(["arrivals", "nowhere"], request_timeout=PATIENCE)
    for topic, future in sorted(gone.items()):
        trying(note, f"delete {topic}", future.result)
    note(sorted(admin.list_topics(timeout=PATIENCE).topics), admin.poll(0))
    for name, call in (
        ("no list", lambda: admin.delete_topics("flights")),
        ("no collection", lambda: admin.describe_topics(["flights"])),
        ("no keyword", lambda: admin.create_topics(wanted, patience=3)),
        ("no setting", lambda: of.AdminClient({"no.such.setting": 1})),
        ("no topics", lambda: admin.delete_topics([])),
        ("no names", lambda: admin.delete_topics([None, "flights"])),
        ("no time", lambda: admin.create_topics(wanted, request_timeout=-5)),
        ("no flag", lambda: admin.create_topics(wanted, validate_only="maybe")),
    ):
        trying(note, name, call)
    with of.AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as closed:
        note(len(closed))
    for call in (lambda: closed.poll(0), closed.list_topics, lambda: closed.create_topics(wanted)):
        trying(note, "closed", call)


PROGRAMS: tuple[Program, ...] = (
    *(
        delivery_reports,
        keys_choose_partitions,
        produce_rejects_wrong_arguments,
        a_topic_that_does_not_exist,
    ),
    *(no_broker_accepts_records, a_brokers_error_is_reported, a_callback_raises, a_full_queue),
    *(purged_messages, purged_messages_that_were_sent, reports_of_errors_only),
    *(batches_of_messages, transactions),
    *(offsets_in_a_transaction, a_fenced_producer, no_broker_answers, configurations, metadata),
    *(serializers, administration),
)
