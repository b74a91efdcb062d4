"""A hundred thousand broken frames are decoded to a message, or raise the typed error.

Most frames take the path of received bytes: a connection's reader gets them in chunks of any size,
then the decoders of the header and of the expected response; requests take the decoder that
simulated brokers use. The other frames are read by whole clients (producer, consumer with records,
admin), which get responses that can be decoded and make no sense. Memory is measured.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import pytest
from tests.answers import decode_response
from tests.peak_memory import peak_below
from tests.property.protocol.test_broken_frames import PAIRS, fitted, mutated
from tests.spec.world import ClusterPicture, World, parse, up
from tests.volume import part

from odradek.clients.admin import cluster, topics
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.errors import ClientBrokenError, KafkaError, MalformedMessageError
from odradek.common.types import TopicPartition
from odradek.network.effects import IncomingResponse, Send
from odradek.network.frame import FrameReader
from odradek.network.frame_buffers import STEP
from odradek.network.host import EngineInputs
from odradek.protocol.headers import (
    decode_request_header,
    encode_request,
    encode_response,
    peek_correlation_id,
)
from odradek.protocol.message import Message, Request
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.registry import request_class
from odradek.record import BatchBuilder
from odradek.simulation.world.host import SimulatedHost

READ = part(88_000)
THROUGH_CLIENTS = part(12_000)
CHUNKS = 8
LIMIT = 64 << 20
KINDS = ("producer", "consumer", "admin")


assert part(100_000) == READ + THROUGH_CLIENTS


def broken(frame: bytes, rng: random.Random) -> bytes:
    """Apply one to three changes anywhere, including the length in front."""
    found = bytearray(mutated(frame, rng))
    if rng.random() < 0.7 and len(found) >= 4:  # otherwise most are only truncated
        found[:4] = (len(found) - 4).to_bytes(4, "big")
    return bytes(found)


def whole(message: type[Message], version: int) -> bytes:
    """Return a valid frame of a message."""
    made = fitted(message, version)
    if isinstance(made, Request):
        return b"".join(bytes(b) for b in encode_request(made, version, 5, "client"))
    return b"".join(bytes(b) for b in encode_response(made, version, 5))


FRAMES = [(message, version, whole(message, version)) for message, version in PAIRS]


def read(frame: bytes, rng: random.Random) -> list[memoryview]:
    """Return what the reader of a connection returns for bytes in chunks."""
    reader = FrameReader(LIMIT)
    frames: list[memoryview] = []
    rest = memoryview(frame)
    while rest:
        buffer = reader.get_buffer()
        count = min(len(buffer), len(rest), rng.choice((1, 7, 1 << 20)))
        buffer[:count] = rest[:count]
        frames += reader.buffer_updated(count)
        rest = rest[count:]
    return frames


def take(message: type[Message], version: int, frame: memoryview) -> None:
    """Decode a frame as its receiver does: a client or a broker."""
    if issubclass(message, Request):
        api_key, other_version, _, _, start = decode_request_header(frame)
        if (api_key, other_version) == (message.API_KEY, version):
            message.decode(frame, version, start)
    else:
        peek_correlation_id(frame)
        decode_response(request_class(message.API_KEY), version, frame)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_broken_frames_are_decoded_or_rejected_with_the_typed_error(chunk: int) -> None:
    rng = random.Random(chunk)
    outcomes: Counter[str] = Counter()
    with peak_below(STEP + (4 << 20)):  # a length without data must not allocate
        for number in range(READ // CHUNKS):
            message, version, frame = FRAMES[(number * CHUNKS + chunk) % len(FRAMES)]
            frames: list[memoryview] = []
            try:
                frames = read(broken(frame, rng), rng)
            except MalformedMessageError:
                outcomes["refused by the reader"] += 1
            for found in frames:
                try:
                    take(message, version, found)
                except MalformedMessageError:
                    outcomes["refused by the decoder"] += 1
                else:
                    outcomes["a message"] += 1
    # All three outcomes must be frequent, or the changes don't reach their targets.
    assert min(outcomes[o] for o in outcomes) > READ // CHUNKS // 50, outcomes
    assert len(outcomes) == 3


class Breaking(SimulatedHost):
    """A simulated I/O host that passes responses to the engine as bytes, many of them broken."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.versions: dict[tuple[int, int], int] = {}
        self.broken = 0
        self.chance = random.Random(0)

    def _send(self, engine: EngineInputs, effect: Send) -> None:
        request = effect.request
        self.versions[effect.connection, request.correlation_id] = request.version
        super()._send(engine, effect)

    def link_message(self, number: int, response: IncomingResponse) -> None:
        identity, message = response.correlation_id, response.message
        version = self.versions.pop((number, identity))
        if isinstance(message, FetchResponse):
            for topic in message.responses:
                for partition in topic.partitions:
                    partition.records = memoryview(RECORDS)
        frame = b"".join(bytes(b) for b in encode_response(message, version, identity))
        if self.chance.random() < 0.5:
            self.broken += 1
            frame = broken(frame, self.chance)
        self.link_bytes(number, [memoryview(frame)])
        if number in self.links and self.chance.random() < 0.02:
            self.links[number].close(reset=False)


class Wire(World):
    """Simulation of the cases in tests/spec, whose I/O host breaks many responses."""

    host: Breaking

    def __init__(self, kind: str, seed: int) -> None:
        config = {"bootstrap.servers": "front:9092"}
        super().__init__(config, client=kind, seed=seed, hosts=Breaking)
        self.host.chance = random.Random(seed)
        self.pictures["*"] = ClusterPicture(
            brokers={1: "b1:9092", 2: "b2:9092"}, topics={"t": [1, 2]}
        )
        up(self, "front:9092", "b1:9092", "b2:9092")


def some_records() -> bytes:
    builder = BatchBuilder(1 << 16, None)
    for n in range(5):
        builder.append(b"key", b"value-%d" % n, [("h", b"x")], 1000 + n)
    builder.close()
    return bytes(builder.build(producer_id=-1, producer_epoch=-1, base_sequence=-1))


RECORDS = some_records()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Disable the clients' logs, which would be most of the output of a failed test."""
    caplog.set_level(logging.CRITICAL)


def live_a_little(world: World) -> None:
    """Make the typical calls of this kind of client; they may fail with errors of the package."""
    engine, deadline = world.engine, world.now + 3.0
    if isinstance(engine, ProducerEngine):
        for partition in (0, 1):
            now = world.now
            engine.accumulator.append(TopicPartition("t", partition), (None, b"x", (), 0), 99, now)
        world.wait(engine.flush(deadline), 3.0)
    elif isinstance(engine, ConsumerEngine):
        if not engine.subscription.partitions:
            engine.assign([TopicPartition("t", 0), TopicPartition("t", 1)], None)
            engine.subscription.request_reset(None, "earliest")
        world.wait(engine.data(deadline), 3.0)
        try:
            engine.delivery.records(500, world.now)
            engine.delivery.handed_over()
        except KafkaError:
            engine.subscription.request_reset(None, "earliest")
        world.wait(engine.offsets_at([TopicPartition("t", 0)], -1, deadline), 3.0)
    elif isinstance(engine, AdminEngine):
        world.wait(topics.describe("t", False).flow(engine, deadline), 3.0)
        world.wait(cluster.describe(False, False).flow(engine, deadline), 3.0)
        world.wait(topics.names(True).flow(engine, deadline), 3.0)
        world.wait(topics.delete("t").flow(engine, deadline), 3.0)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_survive_broken_frames_from_brokers(kind: str) -> None:
    total, seed, lives = 0, 0, 0
    while total < THROUGH_CLIENTS // len(KINDS):
        world = Wire(kind, seed)
        seed += 1
        for _ in range(60):
            live_a_little(world)
            if world.engine.ended is not None:
                break
        lives += 1
        total += world.host.broken
        assert all(0 < parse(d.address).port < 65536 for d in world.dials), "an address that isn't"
        ended = world.engine.ended
        # A decodable response may contain anything: another cluster's id, or no permission.
        assert not isinstance(ended, (ClientBrokenError, MalformedMessageError)), (
            f"{kind}, seed {seed - 1}: {ended!r} from {ended.__cause__!r}"
        )
        assert world.steps < 300 + 200 * world.now, f"{kind}, seed {seed - 1}: turns in circles"
        engine = world.engine
        if isinstance(engine, ProducerEngine) and engine.ended is None:
            assert engine.accumulator.used <= engine.accumulator.limit
    assert lives < total
