"""No error of any API makes a client overload its brokers (R-RT-1).

Each case lets all brokers answer one API with one error code for as long as the case lasts. A
client then sends each broker at most six requests per second of any API, after the first few. A
loop from an error to an immediate request of the same or another API fails here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
from tests.property.test_lying_answers import CALLS, admin_of, asked_of
from tests.simulation.spoilt_answers import spoil_answers
from tests.volume import third

from odradek import AsyncConsumer, AsyncProducer, AsyncWorkers, KafkaError
from odradek.common.errors.kafka import NotLeaderOrFollowerError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers.broker_faults import answer_error
from odradek.simulation.brokers.injected_errors import REFUSABLE
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.simulation.faults.response_faults import CODES
from odradek.testing import KafkaSimulation

FIRST = 20
"""Requests of one API to one broker that may come at any rate: backoffs start short."""
WINDOW, RATE = 5.0, 6
"""Seconds of a window; allowed requests per second of one API to one broker."""
BEFORE, LASTS = 4.0, 12.0
"""Seconds before the error, and duration of the error in seconds."""
PACE = 1.0
"""Seconds between two actions of an application, also after an error."""
FOREVER = 10**9


class Rates:
    """Times of requests by broker and API, of the clients under test."""

    def __init__(self, cluster: SimulatedCluster, clock: Callable[[], float]) -> None:
        self.times: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._clock = clock
        cluster.observers.append(self._see)

    def _see(self, broker: Any, client: str, request: Any) -> None:
        if client != "kafka_simulation":
            self.times[broker.id, request.body.API_NAME].append(self._clock())

    @property
    def apis(self) -> set[str]:
        """The APIs that were requested, if an error can be injected into them."""
        return {api for _, api in self.times} & {*REFUSABLE}

    def begin(self) -> None:
        self.times.clear()

    def too_many(self) -> dict[tuple[int, str], int]:
        """Return the most requests in a window, if they exceed the limit."""
        found = {}
        for where, times in self.times.items():
            late = times[FIRST:]
            most = max((sum(t <= x < t + WINDOW for x in late) for t in late[:500]), default=0)
            if most > RATE * WINDOW:
                found[where] = len(times)
        return found


IMPATIENT = {"delivery.timeout.ms": 5000, "request.timeout.ms": 3000}


async def producing(servers: dict[str, Any]) -> None:
    while True:
        with suppress(KafkaError):
            async with AsyncProducer({**servers, **IMPATIENT}) as producer:
                while True:
                    with suppress(KafkaError):
                        await producer.send_and_wait("t", b"x")
                    await asyncio.sleep(PACE)
        await asyncio.sleep(PACE)


async def reading(servers: dict[str, Any], **more: Any) -> None:
    options = {**servers, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000, **more}
    async with AsyncConsumer(options) as consumer:
        if "group.id" not in more:
            consumer.assign([TopicPartition("t", n) for n in range(3)])
        else:
            await consumer.subscribe(["t"])

        async def poll() -> None:
            for _ in range(4):
                await consumer.poll(0.25)

        while True:
            try:
                await poll()
            except KafkaError:
                await asyncio.sleep(PACE)


async def transacting(servers: dict[str, Any]) -> None:
    options = {**servers, "transactional.id": "x", "max.block.ms": 5000, **IMPATIENT}
    offset = 0
    while True:
        with suppress(KafkaError):
            async with AsyncProducer(options) as producer:
                await producer.init_transactions()
                while True:
                    async with producer.transaction():
                        await producer.send_and_wait("out", b"x")
                        offset += 1
                        offsets = {TopicPartition("t", 0): offset}
                        await producer.send_offsets_to_transaction(offsets, "g")
                    await asyncio.sleep(PACE)
        await asyncio.sleep(PACE)


async def working(servers: dict[str, Any], **more: Any) -> None:
    async def work(_: Any) -> None: ...

    options = {**servers, "auto.offset.reset": "earliest", **more}
    while True:
        with suppress(KafkaError):
            async with AsyncConsumer({**options, "enable.auto.commit": False}) as consumer:
                await AsyncWorkers(consumer, work, commit_interval=0.5).run("t")
        await asyncio.sleep(PACE)


GROUP = ("Fetch", "FindCoordinator", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch")
CLASSIC = ("Heartbeat", "JoinGroup", "LeaveGroup", "SyncGroup", *GROUP)
NEW = ("ConsumerGroupHeartbeat", *GROUP)
CLASSIC_ONE: dict[str, Any] = {"group.id": "g", "group.protocol": "classic"}
NEW_ONE: dict[str, Any] = {"group.id": "g", "group.protocol": "consumer"}
Run = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]
CLIENTS: dict[str, tuple[Run, tuple[str, ...]]] = {
    "producer": (
        producing,
        ("GetTelemetrySubscriptions", "InitProducerId", "Metadata", "Produce", "PushTelemetry"),
    ),
    "reader": (reading, ("Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch")),
    "classic member": (partial(reading, **CLASSIC_ONE), CLASSIC),
    "member": (partial(reading, **NEW_ONE), NEW),
    "transactions": (
        transacting,
        ("AddOffsetsToTxn", "AddPartitionsToTxn", "EndTxn", "FindCoordinator", "InitProducerId",
         "Metadata", "Produce", "TxnOffsetCommit"),
    ),
    "classic workers": (partial(working, **CLASSIC_ONE), CLASSIC),
    "workers": (partial(working, **NEW_ONE), NEW),
}  # fmt: skip
KNOWN: tuple[tuple[str, str, int, bool], ...] = (
    ("classic member", "Heartbeat", 13, False),
    ("classic member", "JoinGroup", 25, True),
    ("classic member", "JoinGroup", 27, True),
    ("classic member", "SyncGroup", 22, True),
    ("classic member", "SyncGroup", 27, True),
    ("classic workers", "OffsetCommit", 25, False),
    ("classic workers", "OffsetCommit", 25, True),
    ("producer", "GetTelemetrySubscriptions", 76, True),
    ("producer", "GetTelemetrySubscriptions", 117, True),
)
"""Former request loops: client, API, error code, whether the first request already fails."""


def too_many(client: str, api: str, code: int, early: bool) -> dict[tuple[int, str], int]:
    """Run a client with an error; return the requests that exceeded the limit."""
    run, _ = CLIENTS[client]
    found: dict[tuple[int, str], int] = {}
    with KafkaSimulation(seed=1, checkers=False) as simulation:
        simulation.cluster.receive_telemetry(TelemetryReceiver(interval=1.0))
        for name in ("t", "out"):
            simulation.create_topic(name, partitions=3)
        counted = Rates(simulation.cluster, lambda: simulation.now)

        def feed() -> None:
            with suppress(KafkaError):  # the error may affect this producer, too
                simulation.send("t", b"x")

        feed()
        simulation.every(PACE, feed)
        simulation.advance(PACE)  # the producer gets its id and sends its first record
        servers = {"bootstrap.servers": simulation.bootstrap_servers}

        async def main() -> None:
            task = asyncio.ensure_future(run(servers))
            if not early:
                await asyncio.sleep(BEFORE)
                counted.begin()
            answer_error(simulation.cluster, api, code, FOREVER)
            await asyncio.wait([task], timeout=LASTS)
            found.update(counted.too_many())
            if task.done():
                task.result()
            simulation.heal()
            task.cancel()
            await asyncio.wait([task])

        simulation.run(main())
    return found


@pytest.mark.parametrize(
    ("client", "api"), [(client, api) for client, (_, apis) in CLIENTS.items() for api in apis]
)
def test_no_error_of_an_api_causes_a_loop_of_requests(client: str, api: str) -> None:
    cases = [(code, early) for code in CODES for early in (False, True)]
    found = {
        case: loop
        for case in third(cases, client + api, every=133)
        if (loop := too_many(client, api, *case))
    }
    assert found == {}


@pytest.mark.parametrize(("client", "api", "code", "early"), KNOWN)
def test_errors_that_once_caused_request_loops_are_retried_slowly(
    client: str, api: str, code: int, early: bool
) -> None:
    assert too_many(client, api, code, early) == {}


def asked(call: Callable[[Any], Any], api: str = "", code: int = 0) -> Rates:
    """Repeat a call of an admin client, also after errors; count from the injected error on."""
    world, cluster = asked_of(1)
    counted = Rates(cluster, lambda: world.now)
    with admin_of(world, cluster) as admin:
        if api:
            answer_error(cluster, api, code, FOREVER)
        until = world.now + (LASTS if api else 0.0)
        while True:
            with suppress(KafkaError):
                call(admin)
            if world.now >= until:
                break
            world.advance(PACE)
        cluster.heal()
    return counted


@pytest.mark.parametrize("name", CALLS)
def test_no_error_of_an_api_causes_a_loop_of_an_admin_client(name: str) -> None:
    call, _ = CALLS[name]
    found = {}
    for api in sorted(asked(call).apis):
        for code in third(CODES, name + api, every=134):
            if loop := asked(call, api, code).too_many():
                found[api, code] = loop
    assert found == {}


@pytest.mark.parametrize(
    ("client", "request_type"), [("reader", FetchRequest), ("producer", ProduceRequest)]
)
def test_leaders_that_change_with_each_response_cause_no_request_loop(
    client: str, request_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check KIP-951: each response names a newer leader; only the first is asked at once."""
    epochs = count(100)

    def hint(answer: Any) -> None:
        topics = getattr(answer, "responses", ())
        for topic in topics:
            for part in getattr(topic, "partitions", ()) or topic.partition_responses:
                part.error_code = NotLeaderOrFollowerError.code
                part.current_leader.leader_id = 1 + next(epochs) % 3
                part.current_leader.leader_epoch = next(epochs)

    with monkeypatch.context() as patch:
        spoil_answers(patch, request_type.API_KEY, hint)
        assert too_many(client, "DescribeQuorum", 1, True) == {}
