"""R-IN-1 for all public calls: no argument breaks the client.

Every public method of every client class and future, found by introspection, is called with each
hostile value for each of its parameters, in a simulation. It may raise a `KafkaError` only, which
names the argument if it is about one. Afterwards the client still works, and delivers what it had
buffered before. A parameter for which no valid value is known below fails the test that meets it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import datetime
import decimal
import fractions
import inspect
import math
import re
from array import array
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.simulation.test_admin_async import CALLS
from tests.volume import third

import odradek
from odradek import (
    Admin,
    AsyncWorkers,
    ConsumerGroupMetadata,
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
    Workers,
)
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.config import OPTIONS, Config
from odradek.common.errors import ClientBrokenError, ConfigurationError, KafkaError
from odradek.common.options.option_aliases import sealed
from odradek.common.public_names import APART, PLACES
from odradek.runtime.hosts.record_future import ArrowFuture, ManyFuture, RecordFuture
from odradek.serialization import (
    AvroSerializer,
    MessageField,
    ProtobufSerializer,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.simulation import SimulatedCluster, World

pytestmark = [
    pytest.mark.simulation,
    pytest.mark.filterwarnings("ignore:timeout_ms is deprecated:DeprecationWarning"),
]

T0 = TopicPartition("t", 0)
BATCH = {"value": [b"x"]}


class Junk:
    """An object that fits no parameter."""


def done() -> concurrent.futures.Future[int]:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_result(5)
    return future


def junk_record(**fields: Any) -> ConsumerRecord:
    good = ConsumerRecord("t", 0, 1, 0, 0, None, None, (), 0)
    return good._replace(**fields)


ITSELF: Any = object()
"""Placeholder that is replaced by the object whose method is called."""
JUNK: Any = Junk()
OFFSETS = (
    *(OffsetAndMetadata(1, "\ud800"), OffsetAndMetadata(1, "x" * 40_000)),
    *(OffsetAndMetadata(1, "", 2**40), OffsetAndMetadata(1, "", None)),  # type: ignore[arg-type]
    *(OffsetAndMetadata(2.5, 5, "x"), OffsetAndMetadata(1, b"x", -1)),  # type: ignore[arg-type]
    OffsetAndMetadata(np.int64(1)),  # type: ignore[arg-type]
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, 2**31, 2**63 - 1, 2**70, -(2**70)),
    *(0.0, 2.5, -0.5, math.nan, math.inf, -math.inf, 1j, range(3)),
    *(decimal.Decimal("1.5"), decimal.Decimal("NaN"), fractions.Fraction(1, 3)),
    *(datetime.timedelta(seconds=1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
    *(np.int64(1), np.int8(-3), np.uint64(2**64 - 1), np.float64(2.5), np.float32("nan")),
    *(np.bool_(True), np.str_("t"), np.bytes_(b"t"), np.datetime64("2026-01-01")),
    *("", "t", "ab", "5", "a\0b", "\ud800", "a\nb", "x" * 40_000, "^x", "("),
    *("a{99999999999999999999}", b"", b"t", (), ("ab", "cd"), Path("nowhere")),
    *(re.compile("t"), re.compile(b"t")),
    # Collections
    *([], {}, {"t"}, [None], [5], ["t"], ["^x"], [b"t"], ["\ud800"], [""], [re.compile("t")]),
    *([[["x"]], {"a": {"b": JUNK}}], {"a": b"b"}, {5: JUNK}, JUNK),
    *([("a", b"b"), ("c", None)], [("a", "b")], [(b"a", b"b")], [("\ud800", b"")]),
    *([("a", np.int64(1))], [("a", b"b", 3)]),
    # Partitions, offsets
    *(T0, ("t", 0), ("t", np.int64(0)), ("t", 2**70), ("t", -1), ("t", 1.5)),
    *(TopicPartition(None, None), (b"t", 0), ("\ud800", 0)),  # type: ignore[arg-type]
    *([("t", 0)], [("t", 2.5), JUNK], [("t", -1)], [("t", 2**70)], [("t", 2**31 - 1)]),
    *(
        {T0: n}
        for n in (1, np.int64(1), 2.5, math.nan, "5", True, None, -1, 2**63 - 1, 2**70, JUNK)
    ),
    *({T0: one} for one in OFFSETS),
    *({("t", 1.5): 1}, {"t": 1}),
    # Records, groups, topics
    *(junk_record(), junk_record(offset="1"), [junk_record(), junk_record(topic=None)]),
    *([junk_record(offset=2**63 - 1)], [junk_record(partition=2.5), junk_record(leader_epoch="x")]),
    *(ConsumerGroupMetadata("g"), ConsumerGroupMetadata("g", 2**70)),
    *(ConsumerGroupMetadata(b"g"), ConsumerGroupMetadata("g", 2.5, 5, 5)),  # type: ignore[arg-type]
    *([NewTopic("ab")], NewTopic("u"), [NewTopic("u", 2**70, 1)]),
    *([NewTopic(None, 2.5)], [NewTopic("u", 1, 1, None)]),  # type: ignore[arg-type]
    *([NewTopic("u", 1, 1, {"a": JUNK})],),
    *([NewTopic("\ud800", 1, 1, {b"x": "\ud800"})],),  # type: ignore[dict-item]
)
HOSTILE: dict[str, Callable[[], Any]] = {
    **{ascii(one)[:120]: partial(copy.deepcopy, one) for one in VALUES},
    # Buffers
    "bytearray": lambda: bytearray(b"t"),
    "memoryview": lambda: memoryview(b"t"),
    "wide memoryview": lambda: memoryview(array("q", [1, 2])),
    "memoryview with gaps": lambda: memoryview(b"abcd")[::2],
    "memoryview of none": lambda: memoryview(b"abcd").cast("B", (2, 2)),
    "array": lambda: array("d", [1.5]),
    "np.array": lambda: np.arange(3),
    "np.array 0": lambda: np.array(5),
    "np.array of objects": lambda: np.array([None, "x"], dtype=object),
    # Iterators
    "generator": lambda: (x for x in ("t", 0)),
    "generator of pairs": lambda: (p for p in [("a", b"b")]),
    # Columns
    "table": lambda: pa.table({"value": [b"a"]}),
    "table of numbers": lambda: pa.table({"value": [5]}),
    "table without columns": lambda: pa.table({}),
    "offsets of junk": lambda: pa.table({"topic": [5], "partition": ["x"], "offset": ["y"]}),
    "offsets of floats": lambda: pa.table({"topic": ["t"], "partition": [0.5], "offset": [2.5]}),
    "offsets without topic": lambda: pa.table({"topic": [None], "partition": [0], "offset": [1]}),
    # Other objects
    "future": done,
    "itself": lambda: ITSELF,
}

REGISTRY = SchemaRegistryClient({"url": "http://127.0.0.1:9"})  # nulls need no schema
GOOD: dict[str, Any] = {
    "topic": "t",
    "value": b"v",
    "tp": T0,
    "partitions": [T0],
    "offset": 1,
    "offsets": {T0: 1},
    "times": {T0: 1},
    "group": "g",
    "names": ["t"],
    "topics": ["t"],
    "timeout": 1.0,
    "listener": print,
    "callback": lambda *_: None,
    "result": 5,
    "exception": None,
    "username": "alice",
    "password": "secret",
    "path": "/dev/null",
    "context": SerializationContext("t", MessageField.VALUE),
    "record_name": "Flight",
    "column": pa.array([None], pa.binary()),
    "registry": REGISTRY,
    "serializer": AvroSerializer(REGISTRY, '"string"'),
    "kind": pa.struct([("to", pa.string())]),
}
"""Values of the other parameters, if they are required or would wait for long."""
GOOD_FOR: dict[tuple[str, str], Any] = {
    ("send_arrow", "data"): pa.record_batch(BATCH),
    ("arrow_to_protobuf", "serializer"): ProtobufSerializer(Timestamp, REGISTRY),
    ("send_arrow", "value"): "value",
    ("send_many", "values"): [b"v", None],
    **{
        (method, name): value
        for method, given, options in CALLS
        for name, value in inspect.signature(getattr(Admin, method))
        .bind(None, *given, **options)
        .arguments.items()
        if name != "self"
    },
    ("create_topics", "topics"): [NewTopic("made", 1, 1)],
    ("describe_log_dirs", "brokers"): [1],
    ("delete_topics", "topics"): ["gone"],
    ("subscribe", "listener"): None,
    ("subscribe", "topics"): ["t"],
    ("describe_topics", "topics"): ["t"],
    ("describe_reachability", "topics"): ["t"],
}
SAYS: dict[str, str] = {
    "before_offsets": "offset|partition",
    "brokers": "broker",
    "groups": "group|partition",
    "places": "place|path|replica",
    "replicas": "replica|partition|broker",
    "specs": "spec|offset to look up|partition",
    "updates": "update",
    "tp": "partition",
    "partitions": "partition|the offset of",
    "times": "times|time for|partition",
    "until": "until|partition",
    "offsets": "offset|partition|commit",
    "data": "data|column",
    "value": "value|column|row",
    "key": "key|column|row",
    "headers": "headers|column|row",
    "partition": "partition|column|row",
    "timestamp": "timestamp|column|row",
    "columns": "column",
    "topics": "topic",
    "topic": "topic|name",
    "names": "names|topic",
    "password": "password",
    "group": "group",
    "path": "path|can't be read",
}
"""Regular expressions of other words by which an error may name a parameter."""
INSIDE = {
    (Producer, name)
    for name in ("outcome_deadline", "await_outcome", "surface", "watched", "too_late")
}
"""Methods that are public for futures, and that users don't call."""
CLASSES: dict[str, type] = {
    "producer": Producer,
    "transactional": Producer,
    "reader": Consumer,
    "assigned": Consumer,
    "classic": Consumer,
    "consumer": Consumer,
    "admin": Admin,
    "record_future": RecordFuture,
    "fresh_future": RecordFuture,
    "arrow_future": ArrowFuture,
    "many_future": ManyFuture,
}


class Scene:
    """A cluster, one client of a kind, and how to check that it works."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.world = World(seed=1)
        self.cluster = SimulatedCluster(self.world, brokers=1)
        self.cluster.create_topic("t", partitions=1)
        self.cluster.create_topic("gone", partitions=1)
        self.before: list[RecordFuture] = []
        self.aborted = False
        """Whether a call has aborted the transaction, so that earlier records aren't sent."""
        writes = kind.endswith("future") or kind in ("producer", "transactional")
        if not writes:
            with self._producer("writer") as writer:
                for n in range(10):
                    writer.send("t", b"%d" % n)
        self.client: Any = self._writer() if writes else self._reader()
        self.target: Any = self.client
        if kind == "record_future":
            self.target = self.client.send("t", b"x")
            self.target.result()
        elif kind == "fresh_future":
            self.target = self.client.send("t", b"x")
        elif kind == "arrow_future":
            self.target = self.client.send_arrow("t", pa.record_batch(BATCH))
        elif kind == "many_future":
            self.target = self.client.send_many("t", [b"x"])

    def _config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap_servers, **more}

    def _producer(self, name: str, **more: Any) -> Producer:
        return on_host(self.world.host(name), Producer, self._config(**more))

    def _writer(self) -> Producer:
        more: dict[str, Any] = {"linger.ms": 500, "max.block.ms": 1000, "batch.size": 4096}
        if self.kind == "transactional":
            more["transactional.id"] = "x"
        producer = self._producer("producer", **more)
        if self.kind == "transactional":
            producer.init_transactions(10)
            producer.begin_transaction()
        self.before = [producer.send("t", b"before %d" % n) for n in range(5)]
        return producer

    def _reader(self) -> Any:
        if self.kind == "admin":
            return on_host(self.world.host("admin"), Admin, self._config())
        more: dict[str, Any] = {"auto.offset.reset": "earliest"}
        if self.kind != "reader":
            more |= {"group.id": "g", "enable.auto.commit": False}
        if self.kind == "consumer":
            more["group.protocol"] = "consumer"
        consumer = on_host(self.world.host("consumer"), Consumer, self._config(**more))
        if self.kind in ("classic", "consumer"):
            consumer.subscribe(["t"])
            assert consumer.poll(30.0, 1)
        else:
            consumer.assign([T0])
        return consumer

    def rewind(self) -> None:
        """Provide records for calls that wait for them, and a membership for those that need it."""
        if self.kind in ("reader", "assigned") and self.client.assignment() != [T0]:
            self.client.assign([T0])
        if self.kind in ("classic", "consumer") and self.client.subscription() != {"t"}:
            with contextlib.suppress(KafkaError):
                self.client.assign([])
            self.client.subscribe(["t"])
        if isinstance(self.client, Consumer) and self.client.assignment() == [T0]:
            self.client.resume([T0])
            self.client.seek(T0, 0)

    def check_alive(self) -> None:
        """Check that the client works, and that buffered records are delivered."""
        assert self.client.ended is None
        if isinstance(self.client, Producer):
            future = self.client.send("t", b"after")
            self.client.flush(30)
            assert future.result(30).topic == "t"
            offsets = [f.result(30).offset for f in self.before if f.exception(30) is None]
            if self.aborted:
                return
            assert len(offsets) == len(self.before)
            assert offsets == sorted(offsets)
            assert min(offsets) >= 0
        elif isinstance(self.client, Admin):
            assert self.client.create_topics([NewTopic("alive", 1, 1)], 30)
            assert "alive" in self.client.list_topics(30)
        else:
            self.rewind()
            found = []
            for _ in range(
                120
            ):  # members that couldn't leave in time are removed by their session timeout
                found += self.client.poll(1.0)
                if found:
                    break
            assert found
            assert all(record.topic == "t" for record in found)


def methods(cls: type) -> list[str]:
    """Return the methods that users may call."""
    found = [
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and not any((c, name) in INSIDE for c in cls.__mro__)
    ]
    return sorted(found)


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


def good(method: str, parameter: inspect.Parameter) -> Any:
    """Return a valid value; an empty one if that is the default."""
    place = (method, parameter.name)
    if place in GOOD_FOR:
        return GOOD_FOR[place]
    if parameter.default is inspect.Parameter.empty or parameter.name == "timeout":
        assert parameter.name in GOOD, f"give {method}({parameter.name}=) a good value above"
        return GOOD[parameter.name]
    return inspect.Parameter.empty


def arguments(method: str, function: Callable[..., Any], hostile: str, value: Any) -> Any:
    given = {}
    for name, parameter in parameters(function).items():
        given[name] = value if name == hostile else good(method, parameter)
    return {name: v for name, v in given.items() if v is not inspect.Parameter.empty}


def carried_out(call: Callable[..., Any], given: dict[str, Any]) -> None:
    """Make a call and use its result: iterators and contexts run at their first use."""
    one_by_one = [
        p.name
        for p in inspect.signature(call).parameters.values()
        if p.kind is inspect.Parameter.VAR_POSITIONAL
    ]
    result = call(*[given.pop(name) for name in one_by_one if name in given], **given)
    if hasattr(result, "__next__"):
        next(result, None)
    elif isinstance(result, contextlib.AbstractContextManager) and not hasattr(result, "ended"):
        with result:
            pass


def judge(error: BaseException, what: str, parameter: str) -> None:
    """Check that an error may be raised by a call with a hostile argument."""
    told = f"{what}: {type(error).__name__}: {error}"
    assert isinstance(error, KafkaError), told
    assert not isinstance(error, ClientBrokenError), told
    if isinstance(error, ConfigurationError):
        assert re.search(SAYS.get(parameter, parameter), str(error), re.IGNORECASE), told
    str(error).encode()  # half of a surrogate pair can't be printed


CONSUMERS = [kind for kind, cls in CLASSES.items() if cls is Consumer]
CASES = [
    (kind, name)
    for kind in CLASSES
    for name in methods(CLASSES[kind])
    if kind not in CONSUMERS or kind in third(CONSUMERS, name, 2)
]


@pytest.mark.parametrize(("kind", "method"), CASES, ids=lambda x: str(x))
def test_no_argument_breaks_a_client(kind: str, method: str) -> None:
    scene = Scene(kind)
    function = getattr(CLASSES[kind], method)
    for parameter in parameters(function):
        for label, make in third(HOSTILE.items(), f"{kind}.{method} {parameter}", 8):
            if method in ("close", "unsubscribe", "subscribe", "assign") and scene.target._closed:
                scene = Scene(kind)
            scene.rewind()
            value = make()
            value = scene.target if value is ITSELF else value
            given = arguments(method, function, parameter, value)
            what = f"{kind}.{method}({parameter}={label})"
            try:
                carried_out(getattr(scene.target, method), given)
            except Exception as error:
                judge(error, what, parameter)
            ended = scene.client.ended
            assert ended is None or scene.client._closed, what
            after(scene, method)
    if not scene.client._closed:
        scene.check_alive()


def after(scene: Scene, method: str) -> None:
    """Finish or restart the transaction, so that the next call can use the client."""
    if scene.kind == "transactional" and method in ("abort_transaction", "commit_transaction"):
        scene.aborted = method == "abort_transaction"
        for call in (partial(getattr(scene.client, method), 30), scene.client.begin_transaction):
            with contextlib.suppress(KafkaError):
                call()


FUNCTIONS = [n for n, place in PLACES.items() if n[0].islower() and place not in APART]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_breaks_a_public_function(name: str) -> None:
    function = getattr(import_module(PLACES[name]), name)
    for parameter in parameters(function):
        for label, make in HOSTILE.items():
            given = arguments(name, function, parameter, make())
            try:
                carried_out(function, given)
            except Exception as error:
                judge(error, f"{name}({parameter}={label})", parameter)


@pytest.mark.parametrize("facade", [Producer, Consumer, Admin])
def test_no_configuration_breaks_the_constructor_of_a_client(facade: Any) -> None:
    kind = facade.__name__.lower()
    for label, make in third(HOSTILE.items(), kind, 6):
        try:
            if not label.startswith("{"):  # a dict's values are one-letter secrets
                facade(make())
        except Exception as error:
            judge(error, f"{kind}({label})", "config|bootstrap.servers|option|path|can't be read")
        for name in OPTIONS:
            if kind not in OPTIONS[name].clients or sealed({name: "t"}) != {name: "t"}:
                continue
            try:
                Config(kind, {"bootstrap.servers": "b:1", name: make()})
            except Exception as error:
                judge(error, f"{kind}: {name}={label}", ".")


def work(record: ConsumerRecord) -> None: ...


async def awaited(record: ConsumerRecord) -> None: ...


@pytest.mark.parametrize("kind", [Workers, AsyncWorkers])
def test_no_argument_breaks_workers(kind: Any) -> None:
    prefix = "Async" if kind is AsyncWorkers else ""
    group = {"bootstrap.servers": "b:1", "group.id": "g", "enable.auto.commit": False}
    clients = {
        "consumer": getattr(odradek, f"{prefix}Consumer")(group),
        "producer": getattr(odradek, f"{prefix}Producer")({"bootstrap.servers": "b:1"}),
    }
    given = {**clients, "work": awaited if prefix else work, "dead_letter_topic": "dead"}
    for parameter in parameters(kind.__init__):
        for label, make in HOSTILE.items():
            try:
                kind(**{**given, parameter: make()})
            except Exception as error:
                judge(error, f"{kind.__name__}({parameter}={label})", parameter)
    for parameter in parameters(kind.run):
        for label, make in HOSTILE.items():
            flow = kind(**given)._run.run(*run_arguments(parameter, make()))
            try:
                next(flow)
            except Exception as error:
                judge(error, f"{kind.__name__}.run({parameter}={label})", parameter)


def run_arguments(parameter: str, value: Any) -> tuple[Any, Any, Any]:
    given = {"topics": ["t"], "pattern": None, "timeout": None, parameter: value}
    return given["topics"], given["pattern"], given["timeout"]
