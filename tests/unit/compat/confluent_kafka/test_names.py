"""Compare names, numbers and signatures with the installed confluent-kafka."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from enum import Enum
from importlib import import_module
from random import Random
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.aio
import pytest
from tests.time_limits import HANG_S

import odradek.compat.confluent_kafka as ours
from odradek.compat.confluent_kafka import KafkaError, admin, aio, cimpl

LIBRARY = "odradek.compat.confluent_kafka"
NOT_HERE = {
    # share groups (KIP-932)
    *("ShareConsumer", "DeserializingShareConsumer", "AcknowledgeType", "Messages"),
    *("IllegalStateException", "ConcurrentModificationException"),
    "kafkatest",  # a submodule with tests of the library
}
"""Public names without a counterpart here; docs/switching.md names each of them."""
SIGNATURES: dict[str, dict[str, list[tuple[str, Any]]]] = {
    "Producer": {
        "produce": [
            *(("topic", ...), ("value", None), ("key", None), ("partition", -1)),
            *(("callback", None), ("on_delivery", None), ("timestamp", 0), ("headers", None)),
        ],
        "produce_batch": [
            *(("topic", ...), ("messages", ...), ("partition", -1)),
            *(("callback", None), ("on_delivery", None)),
        ],
        "poll": [("timeout", -1)],
        "flush": [("timeout", -1)],
        "purge": [("in_queue", True), ("in_flight", True), ("blocking", True)],
        "list_topics": [("topic", None), ("timeout", -1)],
        "init_transactions": [("timeout", -1)],
        "begin_transaction": [],
        "commit_transaction": [("timeout", -1)],
        "abort_transaction": [("timeout", -1)],
        "send_offsets_to_transaction": [
            *(("positions", ...), ("group_metadata", ...), ("timeout", -1)),
        ],
        "set_sasl_credentials": [("username", ...), ("password", ...)],
        "cluster_id": [("timeout", -1)],
        "close": [],
    },
    "Consumer": {
        "subscribe": [
            *(("topics", ...), ("on_assign", None), ("on_revoke", None), ("on_lost", None)),
        ],
        "poll": [("timeout", -1)],
        "consume": [("num_messages", 1), ("timeout", -1)],
        "commit": [("message", None), ("offsets", None), ("asynchronous", True)],
        "store_offsets": [("message", None), ("offsets", None)],
        "committed": [("partitions", ...), ("timeout", -1)],
        "get_watermark_offsets": [("partition", ...), ("timeout", -1), ("cached", False)],
        "offsets_for_times": [("partitions", ...), ("timeout", -1)],
        "assign": [("partitions", ...)],
        "incremental_assign": [("partitions", ...)],
        "incremental_unassign": [("partitions", ...)],
        "position": [("partitions", ...)],
        "pause": [("partitions", ...)],
        "resume": [("partitions", ...)],
        "seek": [("partition", ...)],
        "list_topics": [("topic", None), ("timeout", -1)],
        "set_sasl_credentials": [("username", ...), ("password", ...)],
        "cluster_id": [("timeout", -1)],
    },
}
"""Signatures from documentation and type stubs, as compiled classes can't be inspected."""


def public(of: Any) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_package_has_confluent_kafkas_names() -> None:
    offered = set(confluent_kafka.__all__)
    assert offered - set(ours.__all__) == NOT_HERE
    for name in sorted(offered - NOT_HERE):
        assert hasattr(ours, name), name
    for name in sorted(NOT_HERE):
        assert not hasattr(ours, name)


def of_admin() -> list[str]:
    """Return the names of the classes and constants of confluent-kafka's admin module."""
    theirs: Any = confluent_kafka.admin
    return sorted(
        name
        for name in public(theirs)
        if name.isupper()
        or getattr(getattr(theirs, name), "__module__", "").partition(".")[0]
        in ("confluent_kafka", "cimpl")
    )


def test_the_admin_module_has_confluent_kafkas_names_and_constants() -> None:
    assert len(of_admin()) > 40
    for name in of_admin():
        their, mine = getattr(confluent_kafka.admin, name), getattr(admin, name)
        if name.isupper():
            assert mine == their, name
        elif issubclass(their, Enum):
            assert {m.name: m.value for m in mine} == {m.name: m.value for m in their}
        else:
            assert public(their) - public(mine) <= FIELDS, name
            assert public(mine) - public(their) == set(), name
    assert admin._ElectionType is ours.ElectionType


FIELDS = {
    *("topic", "num_partitions", "replication_factor", "replica_assignment", "config"),
    "new_total_count",
}
"""Fields of two classes that `dir()` shows only for classes written in C."""


def described(library: Any) -> list[Any]:
    """Return objects of all classes of the admin module."""
    module = import_module(f"{library.__name__}.admin")
    node, some = library.Node(1, "h", 2), [library.TopicPartition("t", 1)]
    operation = module.AclOperation
    assigned = module.MemberAssignment(some)
    info = module.ScramCredentialInfo(module.ScramMechanism.SCRAM_SHA_256, 5000)
    allowed = [operation.READ, "write", 5]
    return [
        *(module.ConfigEntry("a", "b"), module.ConfigResource("topic", "t", {"a": "b"})),
        module.ConfigEntry("a", None, module.ConfigSource.DEFAULT_CONFIG, True, True, True, True),
        *(module.ConfigResource("GROUP", "g", error="e"), module.ConfigResource(4, "1")),
        module.AclBinding("topic", "t", "literal", "User:a", "*", "read", "allow"),
        module.AclBindingFilter("any", None, "match", None, None, "any", "any"),
        *(module.ConsumerGroupListing("g", True, "stable", 2), module.ConsumerGroupListing("g", 0)),
        *(module.ListConsumerGroupsResult([], []), assigned, module.MemberAssignment(None)),
        module.MemberDescription("m", "c", "h", assigned, "i"),
        module.ConsumerGroupDescription("g", False, [], "range", "empty", node, allowed, "classic"),
        *(module.GroupMember(), module.GroupMetadata(), info),
        module.UserScramCredentialsDescription("u", [info]),
        module.UserScramCredentialUpsertion("u", info, b"p", b"s"),
        module.UserScramCredentialDeletion("u", module.ScramMechanism.SCRAM_SHA_512),
        *(module.ListOffsetsResultInfo(1, 2, -1), module.DeletedRecords(3)),
        *(module.NewTopic("t", 1), module.NewPartitions("t", 3)),
        module.TopicDescription("t", library.Uuid(1, 2), False, [], allowed),
        module.DescribeClusterResult(node, [node], "id", allowed),
    ]


def plain(value: Any) -> Any:
    """Return the content of an object as dicts, lists and texts."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "__dict__"):
        return {name: plain(one) for name, one in vars(value).items()}
    return str(value)


def test_objects_of_the_admin_module_have_the_same_content_and_text() -> None:
    for mine, theirs in zip(described(ours), described(confluent_kafka), strict=True):
        assert type(mine).__name__ == type(theirs).__name__
        if hasattr(theirs, "__dict__"):
            assert plain(mine) == plain(theirs)
        if "__repr__" in vars(type(theirs)) or "__str__" in vars(type(theirs)):
            assert (str(mine), repr(mine)) == (str(theirs), repr(theirs))


def test_objects_of_the_admin_module_are_compared_and_changed_in_the_same_way() -> None:
    for library in (admin, confluent_kafka.admin):
        module: Any = library
        resource, acl = module.ConfigResource, module.AclBinding
        assert resource("topic", "t") == resource("topic", "t", {"a": "b"})
        assert min([resource("topic", "t"), resource("topic", "s")]).name == "s"
        assert len(resource("topic", "t", {"a": "b"})) == 1
        assert len({acl("topic", n, "literal", "u", "*", 3, 3) for n in "aab"}) == 2
        assert module.OffsetSpec.earliest() < module.OffsetSpec.latest()
        assert module.OffsetSpec.latest() == module.OffsetSpec.latest()
        assert module.NewPartitions("a", 3) == module.NewPartitions("a", 3, [[1]])
        assert module.NewTopic("a", 1) < module.NewTopic("b", 1)
        changed = resource("topic", "t")
        changed.set_config("a", "b")
        changed.set_config("a", "c", overwrite=False)
        changed.add_incremental_config(module.ConfigEntry("x", "y"))
        assert changed.set_config_dict == {"a": "b"}
        assert [e.name for e in changed.incremental_configs] == ["x"]


def test_a_missing_class_raises_an_attribute_error_with_the_reason() -> None:
    with pytest.raises(AttributeError, match="share groups"):
        _ = ours.ShareConsumer
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ours.nothing


@pytest.mark.parametrize(
    "name",
    ["Producer", "Consumer", "Message", "TopicPartition", "KafkaError", "Uuid", "KafkaException",
     "SerializingProducer", "DeserializingConsumer"],
)  # fmt: skip
def test_classes_have_the_same_methods_as_in_confluent_kafka(name: str) -> None:
    theirs, mine = getattr(confluent_kafka, name), getattr(ours, name)
    assert public(theirs) - public(mine) == set()
    assert {n for n in public(mine) - public(theirs) if not n.isupper()} == set()


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_methods_have_the_same_arguments_as_in_confluent_kafka(name: str) -> None:
    for method, wanted in SIGNATURES[name].items():
        assert hasattr(getattr(confluent_kafka, name), method)
        found = inspect.signature(getattr(getattr(ours, name), method)).parameters.values()
        arguments = [
            (p.name, ... if p.default is p.empty else p.default) for p in found if p.name != "self"
        ]
        assert arguments == wanted, method


def test_constants_have_the_same_values_as_in_confluent_kafka() -> None:
    for name in ours.__all__:
        value = getattr(ours, name)
        if name.isupper():
            assert value == getattr(confluent_kafka, name)


def test_error_codes_are_the_same_as_in_confluent_kafka() -> None:
    theirs = {n: c for n, c in vars(confluent_kafka.KafkaError).items() if isinstance(c, int)}
    assert len(theirs) > 150
    assert {name: getattr(KafkaError, name) for name in theirs} == theirs


@pytest.mark.parametrize("arguments", [(3,), (-185,), (0,), (9999,), (-192, "why", True)])
def test_errors_behave_as_in_confluent_kafka(arguments: tuple[Any, ...]) -> None:
    mine, theirs = KafkaError(*arguments), confluent_kafka.KafkaError(*arguments)
    for method in ("code", "name", "fatal", "retriable", "txn_requires_abort"):
        assert getattr(mine, method)() == getattr(theirs, method)()
    assert (bool(mine), hash(mine)) == (bool(theirs), hash(theirs))
    assert str(mine).partition("str=")[0] == str(theirs).partition("str=")[0]
    if len(arguments) > 1:
        assert str(mine) == str(theirs)
    for number in (arguments[0], arguments[0] + 1):
        other = KafkaError(number), confluent_kafka.KafkaError(number)
        for operator in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
            assert getattr(mine, operator)(number) == getattr(theirs, operator)(number)
            assert getattr(mine, operator)(other[0]) == getattr(theirs, operator)(other[1])


ENUMS = ("ConsumerGroupState", "ConsumerGroupType", "IsolationLevel", "ElectionType")


@pytest.mark.parametrize("name", ENUMS)
def test_enumerations_have_the_same_members_as_in_confluent_kafka(name: str) -> None:
    theirs, mine = getattr(confluent_kafka, name), getattr(ours, name)
    assert {k: v.value for k, v in mine.__members__.items()} == {
        k: v.value for k, v in theirs.__members__.items()
    }
    assert sorted(mine, reverse=True) == list(mine)[::-1]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Node", (1, "host", 9092)), ("Node", (1, "host", 9092, "rack")),
     ("ConsumerGroupTopicPartitions", ("group",)), ("TopicCollection", (["a"],)),
     ("TopicPartitionInfo", (1, None, [], []))],
)  # fmt: skip
def test_data_classes_have_the_same_fields_and_text_as_in_confluent_kafka(
    name: str, arguments: tuple[Any, ...]
) -> None:
    theirs, mine = getattr(confluent_kafka, name), getattr(ours, name)
    assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters)
    assert vars(mine(*arguments)) == vars(theirs(*arguments))
    if "__str__" in vars(theirs):
        assert str(mine(*arguments)) == str(theirs(*arguments))


def test_topic_partitions_behave_as_in_confluent_kafka() -> None:
    made = [
        [library.TopicPartition(*arguments) for arguments in (("a",), ("a", 1, 5, "m", 3), ("b",))]
        for library in (ours, confluent_kafka)
    ]
    for mine, theirs in zip(*made, strict=True):
        for name in ("topic", "partition", "offset", "metadata", "leader_epoch", "error"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert (str(mine), repr(mine)) == (str(theirs), repr(theirs))
    for library in (ours, confluent_kafka):
        partition = library.TopicPartition
        assert partition("a", 1, 5) == partition("a", 1, 6)
        assert hash(partition("a", 1, 5)) == hash(partition("a", 1, 6))
        assert partition("a", 1) < partition("a", 2) <= partition("b", 0)
        with pytest.raises(TypeError):
            partition(3)


def test_messages_behave_as_in_confluent_kafka() -> None:
    for arguments in ((), ("t", 1, 2, b"k", b"value", [("h", b"x")], None, (1, 7), 0.5, 3)):
        mine: Any = ours.Message(*arguments)
        theirs: Any = confluent_kafka.Message(*arguments)
        for name in sorted(public(theirs)):
            if not name.startswith("set_"):
                assert getattr(mine, name)() == getattr(theirs, name)(), name
        assert len(mine) == len(theirs)
    for message in (mine, theirs):
        message.set_key("key")
        message.set_value("a value")
        message.set_headers([])
        message.set_topic("other")
        assert (message.key(), message.deserialized_value(), len(message)) == ("key", "a value", 7)
        assert (message.headers(), message.topic()) == ([], "other")


def test_messages_are_compared_and_pickled_as_in_confluent_kafka() -> None:
    nothing = (None, -2, -2, None, None, None, None, None, -2.0, -2, -1)
    whole = ("t", 1, 2, b"k", b"value", [("h", b"x")], None, (1, 7), 0.5, 3, 5)
    for arguments in ((), nothing, whole):
        mine, same = ours.Message(*arguments), ours.Message(*arguments)
        theirs = confluent_kafka.Message(*arguments)
        restored = pickle.loads(pickle.dumps(mine))  # noqa: S301
        assert type(restored) is ours.Message
        for message in (mine, restored):
            assert message.__reduce__()[1] == theirs.__reduce__()[1]
        assert mine == same == restored
        assert mine != ours.Message("other")
        assert mine != theirs
        with pytest.raises(TypeError):
            hash(mine)
    for library in (ours, confluent_kafka):
        assert library.Message("t", delivery_count=1) == library.Message("t", delivery_count=2)
        for count in (1 << 15, -(1 << 15) - 1):
            with pytest.raises(OverflowError):
                library.Message(delivery_count=count)
        with pytest.raises(ValueError, match="embedded null character"):
            library.TopicPartition("t", 0, 1, "a\0b")


def test_uuids_behave_as_in_confluent_kafka() -> None:
    for halves in ((1, 2), (-1, 2**63 - 1), (2**62, -5)):
        mine: Any = ours.Uuid(*halves)
        theirs: Any = confluent_kafka.Uuid(*halves)
        assert (str(mine), mine == ours.Uuid(*halves)) == (str(theirs), True)
        assert mine.get_most_significant_bits() == theirs.get_most_significant_bits()
        assert mine.get_least_significant_bits() == theirs.get_least_significant_bits()
        assert hash(mine) == hash(ours.Uuid(*halves))


def test_the_module_cimpl_has_the_names_of_confluent_kafka() -> None:
    theirs: Any = import_module("confluent_kafka.cimpl")
    for name in cimpl.__all__:
        assert hasattr(theirs, name)
        assert getattr(cimpl, name) is getattr(ours, name, None) or name in (
            "NewTopic",
            "NewPartitions",
        )
    said: Any = confluent_kafka.version()  # the type stub says it is a pair
    assert ours.version() == said
    event = ("broker", 3, 1.5)
    assert str(ours.ThrottleEvent(*event)) == str(confluent_kafka.ThrottleEvent(*event))


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_partitioners_return_the_same_partitions_as_in_confluent_kafka(name: str) -> None:
    rng, mine, theirs = Random(5), getattr(ours, name), getattr(confluent_kafka, name)
    for size in (*range(20), 100):
        key, count = rng.randbytes(size), rng.randrange(1, 100)
        assert mine(key, count) == theirs(key, count)
    for wrong in (("text", 3), (b"key", 0)):
        for function in (mine, theirs):
            with pytest.raises((TypeError, ValueError)):
                function(*wrong)


@pytest.mark.parametrize("module", ["error", "serialization"])
def test_classes_of_submodules_have_the_same_base_classes(module: str) -> None:
    mine, theirs = import_module(f"{LIBRARY}.{module}"), import_module(f"confluent_kafka.{module}")
    for name in mine.__all__:
        their, my = getattr(theirs, name), getattr(mine, name)
        names = [b.__name__ for b in their.__mro__ if not b.__name__.startswith("_")]
        found = [b.__name__ for b in my.__mro__ if not b.__name__.startswith("_")]
        assert [n for n in found if n not in ("ErrorCodes", "ReprEnum", "StrEnum")] == names, name


def pairs_of(kind: str) -> tuple[Any, Any]:
    module = import_module(f"{LIBRARY}.serialization")
    return getattr(module, kind), getattr(import_module("confluent_kafka.serialization"), kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("StringSerializer", "größe"), ("StringSerializer", None), ("StringDeserializer", b"\xff"),
     ("IntegerSerializer", -7), ("IntegerSerializer", 1 << 40), ("IntegerDeserializer", b"abcd"),
     ("IntegerDeserializer", b"ab"), ("DoubleSerializer", 2.5), ("DoubleSerializer", "x"),
     ("DoubleDeserializer", b"12345678"), ("DoubleDeserializer", None)],
)  # fmt: skip
def test_serializers_return_the_same_results_and_errors(kind: str, value: Any) -> None:
    found: list[tuple[str | None, Any]] = []
    for make in pairs_of(kind):
        try:
            found.append((None, make()(value)))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["AIOProducer", "AIOConsumer", "AsyncSerializingProducer"])
def test_asyncio_clients_have_the_same_methods_as_in_confluent_kafka(name: str) -> None:
    mine, theirs = getattr(aio, name), getattr(confluent_kafka.aio, name)
    assert public(mine) == public(theirs)
    for method in sorted(public(theirs)):
        my, their = getattr(mine, method), getattr(theirs, method)
        assert inspect.iscoroutinefunction(my) == inspect.iscoroutinefunction(their), method


def test_the_admin_client_has_the_same_methods_as_in_confluent_kafka() -> None:
    assert public(admin.AdminClient) == public(confluent_kafka.admin.AdminClient)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import odradek, odradek.api.producer", {"odradek.compat"}),
        (
            "from odradek.compat.confluent_kafka import Consumer, Producer",
            {"asyncio", "pyarrow", "confluent_kafka", "odradek.compat.aiokafka"},
        ),
    ],
)
def test_imports_do_not_load_modules_that_are_not_needed(code: str, absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    assert set(done.stdout.split()) & absent == set()


def test_the_version_is_that_of_confluent_kafka() -> None:
    assert str(confluent_kafka.__version__) == ours.__version__ == ours.version()
