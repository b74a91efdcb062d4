"""numpy's numbers are accepted like Python's, and other types are refused.

Every parameter of every public method whose type contains numbers, partitions or offsets is found
by introspection; a parameter that is unknown below fails the test that meets it.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.property.test_hostile_arguments import (
    CLASSES,
    Scene,
    after,
    arguments,
    carried_out,
    methods,
    parameters,
)
from tests.volume import some

from odradek import Admin, ConsumerRecord, NewTopic, OffsetAndMetadata, TopicPartition
from odradek.admin import ClientQuotaEntity, NewPartitions
from odradek.api.base import on_host
from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, IllegalStateError, KafkaError
from odradek.simulation import SimulatedCluster, World

pytestmark = [
    pytest.mark.simulation,
    pytest.mark.filterwarnings("ignore:timeout_ms is deprecated:DeprecationWarning"),
]

KINDS = ("producer", "transactional", "assigned", "classic", "admin", "record_future")
WHOLE: tuple[Any, ...] = (
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint64, np.intp),
)
WITH_FRACTIONS = (*WHOLE, np.float16, np.float32, np.float64)
NO_NUMBERS: tuple[Any, ...] = (
    *(np.float64(0.5), np.float32(0.5), np.float64("nan"), np.bool_(True), True, "1"),
    *(np.datetime64("2026-01-01"), decimal.Decimal("0.5")),
)
TIMES = (
    "changes",
    "timeout",
    "timeout_ms",
    "max_lifetime",
    "period",
    "older_than",
    "running_longer_than",
)
NO_TIMES: tuple[Any, ...] = (
    *(np.float64("nan"), np.float32(-0.5), np.int64(-1), np.bool_(True), True, "1"),
)


def partition(number: Any) -> Any:
    return ("t", number)


def up(number: Any, by: int) -> Any:
    """Return the number increased by `by`, as partitions can only be added to a topic."""
    return number + by if type(number) in WHOLE else number


def record(number: Any) -> ConsumerRecord:
    return ConsumerRecord("t", number, number, 0, 0, None, None, (), number)


MADE: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "partition": (lambda n: n,),
    "timestamp_ms": (lambda n: n,),
    "offset": (lambda n: n, OffsetAndMetadata, lambda n: OffsetAndMetadata(0, "", n)),
    "max_records": (lambda n: n + 1 if type(n) in WHOLE else n,),
    "tp": (partition,),
    "partitions": (lambda n: [partition(n)],),
    "offsets": (
        *(lambda n: {partition(0): n}, lambda n: {partition(n): 0}),
        *(lambda n: {partition(0): OffsetAndMetadata(n, "", 0)}, record, lambda n: [record(n)]),
    ),
    "times": (lambda n: {partition(n): 0}, lambda n: {partition(0): n}),
    "until": (lambda n: {partition(n): 0}, lambda n: {partition(0): n}),
}
"""By parameter name: functions that return a value which contains the given number."""
MADE_FOR: dict[tuple[str, str], tuple[Callable[[Any], Any], ...]] = {
    ("assign", "partitions"): (*MADE["partitions"], lambda n: {partition(0): n}),
    ("send_many", "partitions"): (lambda n: [n, 0],),
    ("send_many", "timestamps_ms"): (lambda n: [n, None],),
    ("create_partitions", "topics"): (
        *(lambda n: {"t": up(n, 3)}, lambda n: {"t": NewPartitions(up(n, 3))}),
        lambda n: {"t": NewPartitions(3, [[n]])},
    ),
    ("delete_records", "before_offsets"): (
        lambda n: {partition(0): n},
        lambda n: {partition(n): 0},
    ),
    ("list_offsets", "specs"): (lambda n: {partition(0): n}, lambda n: {partition(n): "LATEST"}),
    ("alter_partition_reassignments", "replicas"): (
        *(lambda n: {partition(0): [n]}, lambda n: {partition(n): [0]}),
    ),
    ("alter_client_quotas", "changes"): (
        lambda n: {ClientQuotaEntity(user="u"): {"producer_byte_rate": n}},
    ),
    ("list_transactions", "producer_ids"): (lambda n: [n],),
    ("describe_log_dirs", "brokers"): (lambda n: [n],),
    ("list_group_offsets", "groups"): (lambda n: {"g": [partition(n)]},),
    ("list_share_group_offsets", "groups"): (lambda n: {"g": [partition(n)]},),
    ("alter_group_offsets", "offsets"): (
        *(lambda n: {partition(0): n}, lambda n: {partition(n): 0}),
        lambda n: {partition(0): OffsetAndMetadata(n, "", 0)},
    ),
    ("alter_share_group_offsets", "offsets"): (
        *(lambda n: {partition(0): n}, lambda n: {partition(n): 0}),
    ),
}
for _name in ("voter", "broker", "controller"):
    MADE[_name] = (lambda n: n,)
NUMBERS = re.compile(r"\b(int|float|Offset|OffsetAndMetadata|TopicPartition)\b")


def cases() -> Iterator[tuple[str, str, str]]:
    for kind in KINDS:
        for method in methods(CLASSES[kind]):
            for name, parameter in parameters(getattr(CLASSES[kind], method)).items():
                if NUMBERS.search(str(parameter.annotation)) and name != "callback":
                    yield kind, method, name


def called(scene: Scene, method: str, name: str, value: Any) -> None:
    scene.rewind()
    function = getattr(CLASSES[scene.kind], method)
    try:
        carried_out(getattr(scene.target, method), arguments(method, function, name, value))
    finally:
        after(scene, method)


@pytest.mark.parametrize(("kind", "method", "name"), list(cases()))
def test_a_numpy_number_is_accepted(kind: str, method: str, name: str) -> None:
    timed = name in TIMES or name == "changes"  # quotas may have fractions too
    usual = (lambda n: n,) if timed else MADE.get(name, ())
    makes: tuple[Callable[[Any], Any], ...] = MADE_FOR.get((method, name), usual)
    assert makes, "say in MADE what is made of a number here"
    refusals: Sequence[Any] = NO_TIMES if timed else NO_NUMBERS
    if kind == "record_future" or method in ("position", "partitions_for"):
        refusals = () if timed else refusals  # buffered records need no time
    if name == "changes":
        refusals = (True, "1", np.bool_(True), math.nan)  # brokers refuse the other values
    refusals = some(refusals, 4)
    scene = Scene(kind)
    for make in makes:
        for number in some(WITH_FRACTIONS if timed else WHOLE, 3):
            scene = Scene(kind) if scene.client._closed else scene
            try:
                called(scene, method, name, make(number(1 if timed else 0)))
            except ConfigurationError:
                raise
            except KafkaError:  # the error concerns the state or a repeated call, not the number
                pass
        for bad in refusals:
            scene = Scene(kind) if scene.client._closed else scene
            with pytest.raises((ConfigurationError, IllegalStateError)):
                called(scene, method, name, make(bad))


@pytest.mark.parametrize("number", WHOLE)
def test_topics_are_created_with_numpy_numbers(number: Any) -> None:
    world = World(seed=1)
    cluster = SimulatedCluster(world, brokers=1)
    servers = cluster.bootstrap_servers
    with on_host(world.host("admin"), Admin, bootstrap_servers=servers) as admin:
        made = admin.create_topics([NewTopic("u", number(3), number(1))])
        assert len(made["u"].partitions) == 3
        for bad in NO_NUMBERS:
            with pytest.raises(ConfigurationError):
                admin.create_topics([NewTopic("v", bad)])


@pytest.mark.parametrize("number", WITH_FRACTIONS)
def test_options_accept_numpy_numbers(number: Any) -> None:
    config = Config("producer", {"bootstrap.servers": "b:1", "linger.ms": number(100)})
    assert config["linger.ms"] == 0.1
    config = Config("producer", bootstrap_servers="b:1", batch_size=number(64))
    assert config["batch.size"] == 64


@pytest.mark.parametrize("bad", [*(b for b in NO_NUMBERS if not isinstance(b, str)), math.inf])
def test_an_option_for_a_number_rejects_values_that_are_not_whole_numbers(bad: Any) -> None:
    for option in ("linger.ms", "batch.size"):
        with pytest.raises(ConfigurationError, match="must be a whole number"):
            Config("producer", {"bootstrap.servers": "b:1", option: bad})


def test_accepted_numbers_are_converted_to_python() -> None:
    scene = Scene("assigned")
    scene.client.assign([("t", np.int64(0))])
    (tp,) = scene.client.assignment()
    assert [type(part) for part in tp] == [str, int]
    scene.client.seek(tp, np.int64(3))
    position = scene.client.position(tp)
    assert (type(position), position) == (int, 3)
    done = scene.client.commit({tp: np.uint8(4)})
    assert done == {TopicPartition("t", 0): OffsetAndMetadata(4)}
    assert type(done[tp].offset) is int
