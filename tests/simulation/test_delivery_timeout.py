"""`delivery.timeout.ms` is exact to 100 ms, for any reason why a batch waits (KIP-91)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from tests.simulation.produce_script import make
from tests.volume import part

from odradek.clients.producer.batch import RecordMetadata
from odradek.common.errors import BufferExhaustedError, KafkaTimeoutError
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.simulation import SimulatedCluster, World

EXACT = 0.1
PARTITIONS = 4
Trouble = Callable[[SimulatedCluster, int], None]


TROUBLES: dict[str, Trouble] = {
    "in flight to a silent broker": lambda cluster, i: cluster.go_silent(i),
    "in flight to a paused broker": lambda cluster, i: cluster.pause(i),
    "no leader": lambda cluster, i: cluster.crash(i),
    "retrying": lambda cluster, i: cluster.accept_then_reset(i),
    "packets vanish": lambda cluster, i: cluster.blackhole(i),
    "closed at once": lambda cluster, i: cluster.ready_then_close(i),
    "the handshake takes long": lambda cluster, i: cluster.slow_handshake(i, 30.0),
}


@pytest.mark.parametrize("everywhere", [False, True], ids=["one broker", "all brokers"])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "before"])
def test_each_record_is_completed_within_the_delivery_timeout(
    trouble: str, everywhere: bool, connected: bool
) -> None:
    rng = random.Random(f"{trouble}{everywhere}{connected}")
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(part(4)):
        delivery = rng.choice((0.7, 2.0, 6.0))
        world, cluster, producer = make(
            seed,
            partitions=PARTITIONS,
            replicas=1,
            **{
                "delivery.timeout.ms": int(1000 * delivery),
                "request.timeout.ms": int(1000 * delivery * rng.choice((0.2, 0.5))),
                "linger.ms": rng.choice((0, 5, 300)),
                "retry.backoff.max.ms": rng.choice((1000, 10000)),
                "batch.size": rng.choice((200, 131072)),
                "max.in.flight.requests.per.connection": rng.choice((1, 5)),
            },
        )
        producer.partitions_for("t", timeout=5)
        if connected:
            for partition in range(PARTITIONS):
                producer.send("t", b"first", partition=partition)
            producer.flush(timeout=5)
        for i in cluster.brokers if everywhere else [next(iter(cluster.brokers))]:
            world.after(rng.uniform(0.0, 0.5), partial(TROUBLES[trouble], cluster, i))

        def told(
            begun: float, world: World, limit: float, error: BaseException | None, _: RecordMetadata
        ) -> None:
            took = world.now - begun
            ended["well" if error is None else type(error).__name__] += 1
            early = isinstance(error, KafkaTimeoutError) and took < limit - 0.3 - EXACT
            # records expire with their batch, which was created up to 0.3 s (linger) earlier
            if early or took > limit + EXACT:
                wrong.append(f"{took} s, {error!r}")

        futures: list[RecordFuture] = []
        for n in range(120):
            futures.append(
                producer.send(
                    "t",
                    b"x" * 50,
                    partition=n % PARTITIONS,
                    on_delivery=partial(told, world.now, world, delivery),
                )
            )
            world.advance(rng.choice((0.0, 0.01, 0.05)))
        world.advance(delivery + EXACT + 0.01)
        late = [f for f in futures if not f.done()]
        assert not late, late[0]._batch.partition
        assert not wrong
        assert not producer._engine.accumulator.used
        producer.close(timeout=1)
    if everywhere and not (connected and trouble == "the handshake takes long"):
        assert ended.total() > ended["well"]


def test_records_expire_in_time_if_linger_ms_is_close_to_the_delivery_timeout() -> None:
    """As in Java, the delivery timeout must cover the linger time and one request."""
    world, cluster, producer = make(
        1,
        brokers=1,
        partitions=1,
        **{"linger.ms": 2900, "delivery.timeout.ms": 3000, "request.timeout.ms": 100},
    )
    producer.partitions_for("t", timeout=5)
    cluster.go_silent(next(iter(cluster.brokers)))
    begin = world.now
    future = producer.send("t", b"1")
    rows = producer.send_arrow("t", pa.table({"value": [b"1", b"2"]}))
    world.advance(3.0 + EXACT)
    assert future.done()
    assert rows.done()
    assert world.now - begin < 3.2
    assert isinstance(future.exception(), KafkaTimeoutError)
    producer.close(timeout=1)


def test_rows_that_wait_for_memory_time_out_from_the_creation_of_their_batch() -> None:
    """Rows in batches expire in time, although `send_arrow` still waits for memory."""
    world, cluster, producer = make(
        2,
        brokers=1,
        partitions=2,
        **{
            "buffer.memory": 20000,
            "max.request.size": 10000,
            "delivery.timeout.ms": 2000,
            "request.timeout.ms": 1000,
            "max.block.ms": 1500,
        },
    )
    producer.partitions_for("t", timeout=5)
    cluster.go_silent(next(iter(cluster.brokers)))
    begin = world.now
    ends: list[float] = []
    engine = producer._engine
    with pytest.raises(BufferExhaustedError):
        producer.send_arrow("t", pa.table({"value": [b"v" * 100] * 1000}))
    assert world.now - begin == pytest.approx(1.5, abs=EXACT)
    for batch in engine.incomplete():
        batch.done.when_done(lambda _: ends.append(world.now))
    assert engine.incomplete()
    world.advance(2.0)
    assert ends
    assert all(end - begin <= 2.0 + EXACT for end in ends)
    assert engine.accumulator.used == 0
    producer.close(timeout=1)
