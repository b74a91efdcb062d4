"""Compare names, signatures, defaults and error numbers with the installed aiokafka."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from importlib import import_module
from types import ModuleType
from typing import Any

import aiokafka
import aiokafka.errors
import pytest

from odradek.common.errors.kafka import ERRORS
from odradek.compat.aiokafka import errors
from odradek.compat.aiokafka.admin.client import ELSEWHERE, AIOKafkaAdminClient

OURS = "odradek.compat.aiokafka"
SUBMODULES = {
    "abc": ("AbstractTokenProvider", "ConsumerRebalanceListener"),
    "helpers": ("create_ssl_context",),
    "partitioner": ("DefaultPartitioner", "murmur2"),
    "structs": (
        *("BrokerMetadata", "ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp"),
        *("PartitionMetadata", "RecordMetadata", "TopicPartition"),
    ),
    "admin": ("AIOKafkaAdminClient", "NewTopic"),
    "admin.client": ("AIOKafkaAdminClient",),
    "admin.new_topic": ("NewTopic",),
    "consumer": ("AIOKafkaConsumer",),
    "consumer.consumer": ("AIOKafkaConsumer",),
    "producer": ("AIOKafkaProducer",),
    "producer.producer": ("AIOKafkaProducer", "TransactionContext"),
    "producer.message_accumulator": ("BatchBuilder",),
    "coordinator.assignors.abstract": ("AbstractPartitionAssignor",),
    "coordinator.assignors.range": ("RangePartitionAssignor",),
    "coordinator.assignors.roundrobin": ("RoundRobinPartitionAssignor",),
    "coordinator.assignors.sticky.sticky_assignor": ("StickyPartitionAssignor",),
}
"""Names that programs import from each module; all names of `errors` are compared."""


def pair(name: str) -> tuple[ModuleType, ModuleType]:
    return import_module(f"{OURS}.{name}"), import_module(f"aiokafka.{name}")


LEFT_OUT = {"AIOKafkaClient"}
"""Names without a counterpart, because they are for sending requests of Kafka's protocol."""


def test_the_package_has_aiokafkas_names() -> None:
    ours = import_module(OURS)
    assert set(ours.__all__) == set(aiokafka.__all__) - LEFT_OUT
    assert ours.__version__ == aiokafka.__version__


def exceptions(module: ModuleType) -> dict[str, type[BaseException]]:
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, BaseException)
    }


def test_every_error_class_has_the_same_number_and_base_classes_as_in_aiokafka() -> None:
    theirs, ours = exceptions(aiokafka.errors), exceptions(errors)
    assert set(ours) == set(theirs)
    for name, their in theirs.items():
        our = ours[name]
        assert our.__name__ == their.__name__, name
        assert [b.__name__ for b in our.__mro__] == [b.__name__ for b in their.__mro__], name
        for fact in ("errno", "message", "retriable", "invalid_metadata"):
            assert getattr(our, fact, None) == getattr(their, fact, None), (name, fact)
    assert set(errors.__all__) == set(aiokafka.errors.__all__)


def test_error_numbers_map_to_the_same_classes_as_in_aiokafka() -> None:
    theirs = {n: kind.__name__ for n, kind in aiokafka.errors.kafka_errors.items()}
    assert {n: kind.__name__ for n, kind in errors.kafka_errors.items()} == theirs
    for number in range(-2, 200):
        assert errors.for_code(number).__name__ == aiokafka.errors.for_code(number).__name__


@pytest.mark.parametrize("name", ["UnknownTopicOrPartitionError", "KafkaTimeoutError"])
@pytest.mark.parametrize("arguments", [(), ("why",)])
def test_errors_have_the_same_text_as_in_aiokafka(name: str, arguments: tuple[str, ...]) -> None:
    ours, theirs = getattr(errors, name), getattr(aiokafka.errors, name)
    assert str(ours(*arguments)) == str(theirs(*arguments))


def test_an_error_of_a_broker_has_the_description_from_kafkas_protocol() -> None:
    said = errors.OffsetOutOfRangeError.description
    assert said == ERRORS[1].__doc__
    assert errors.NoError.description


def test_the_modules_that_applications_import_exist() -> None:
    for module, names in SUBMODULES.items():
        ours, theirs = pair(module)
        for name in names:
            assert hasattr(theirs, name), (module, name)
            assert hasattr(ours, name), (module, name)


SPECIAL = ("__init__", "__call__", "__aiter__", "__anext__", "__aenter__", "__aexit__")


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") or name in SPECIAL
    }


def parameters(function: Any) -> list[tuple[str, object, str]]:
    """Return names, kinds and defaults of parameters; replace sentinels and classes by names."""
    return [
        (p.name, p.kind, _shown(p.default)) for p in inspect.signature(function).parameters.values()
    ]


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):  # aiokafka's empty headers are a list, odradek's a tuple
        return ",".join(map(_shown, value))
    if isinstance(value, type):
        return value.__name__
    plain = value is None or isinstance(value, str | int | bool)
    return repr(value) if plain else type(value).__name__


@pytest.mark.parametrize(
    ("module", "name"),
    [(m, n) for m, names in SUBMODULES.items() for n in names if m != "structs"],
)
def test_signatures_equal_those_of_aiokafka(module: str, name: str) -> None:
    ours, theirs = (getattr(found, name) for found in pair(module))
    if not inspect.isclass(theirs):
        assert parameters(ours) == parameters(theirs)
        return
    for method, function in public(theirs).items():
        if method in ELSEWHERE:
            continue
        if isinstance(function, classmethod | staticmethod):
            function = function.__func__
        if inspect.isfunction(function) and "coordinator" not in module:
            our = inspect.getattr_static(ours, method)
            our = our.__func__ if isinstance(our, classmethod) else our
            if method == "__aexit__":  # Python passes its arguments by position
                assert len(parameters(our)) == len(parameters(function))
            elif (method, name) != ("__init__", "BatchBuilder"):
                assert parameters(our) == parameters(function), method
            assert inspect.iscoroutinefunction(our) == inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("name", SUBMODULES["structs"])
def test_data_classes_have_the_same_fields_and_text_as_in_aiokafka(name: str) -> None:
    ours, theirs = (getattr(found, name) for found in pair("structs"))
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert issubclass(ours, tuple) == issubclass(theirs, tuple)
    count = len(inspect.signature(theirs).parameters)
    values = tuple(range(count))
    assert repr(ours(*values)) == repr(theirs(*values))
    assert str(ours(*values)) == str(theirs(*values))


def test_the_error_for_a_missing_admin_method_refers_to_aiokafkas_own_admin_client() -> None:
    async def program() -> None:
        admin = AIOKafkaAdminClient()
        for name in ELSEWHERE:
            with pytest.raises(AttributeError, match=f"{name}.*aiokafka's own"):
                getattr(admin, name)
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            getattr(admin, "nonsense")  # noqa: B009

    asyncio.run(program())


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky.sticky_assignor"])
def test_assignors_have_the_same_names_as_in_aiokafka(name: str) -> None:
    ours, theirs = pair(f"coordinator.assignors.{name}")
    [found] = [n for n in SUBMODULES[f"coordinator.assignors.{name}"] if n in vars(ours)]
    assert getattr(ours, found).name == getattr(theirs, found).name


def test_errors_can_be_pickled_and_subclassed() -> None:
    for name, kind in exceptions(errors).items():
        found = pickle.loads(pickle.dumps(kind("why")))  # noqa: S301  # our own
        assert (type(found), found.args) == (kind, ("why",)), name

    class Refused(errors.TopicAuthorizationFailedError):
        pass

    assert (Refused.errno, Refused.message) == (29, "TOPIC_AUTHORIZATION_FAILED")
