"""The log of a client about a two-minute outage is short and sufficient (R-EV-1)."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.volume import pairs

import odradek
from odradek.api.base import on_host
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

LIMIT = 50
OUTAGE = 120.0
TAIL = 60.0


def refused(world: World, cluster: SimulatedCluster) -> None:
    for i in cluster.brokers:
        cluster.crash(i)
        world.after(OUTAGE, partial(cluster.restart, i))


def misbehaving(verb: str) -> Callable[[World, SimulatedCluster], None]:
    def begin(world: World, cluster: SimulatedCluster) -> None:
        for i in cluster.brokers:
            getattr(cluster, verb)(i)
            world.after(OUTAGE, partial(cluster.repair, i))

    return begin


def flapping(seconds: float) -> Callable[[World, SimulatedCluster], None]:
    def begin(world: World, cluster: SimulatedCluster) -> None:
        for number in range(int(OUTAGE / seconds / 2)):
            for i in cluster.brokers:
                world.after(2 * number * seconds, partial(cluster.crash, i))
                world.after((2 * number + 1) * seconds, partial(cluster.restart, i))

    return begin


FAULTS = {
    "refused": refused,
    "black-holed": misbehaving("blackhole"),
    "accept-reset": misbehaving("accept_then_reset"),
    "ready-then-close": misbehaving("ready_then_close"),
    "silent": misbehaving("go_silent"),
    "flapping": flapping(3.0),
    "flapping fast": flapping(0.4),
}
KINDS = ("producer", "consumer", "admin")


def at_work(
    kind: str, world: World, cluster: SimulatedCluster, make: Callable[..., Any]
) -> Callable[[], None]:
    """Start a client of this kind; return a function that uses it for about a second."""
    client = make(kind, client_id=kind)
    if kind == "producer":
        client.send("t", b"first", partition=0).result(timeout=5.0)
        numbers = itertools.count()

        def produce() -> None:
            client.send("t", b"more", partition=next(numbers) % 3)
            world.advance(1.0)

        return produce
    if kind == "consumer":
        client.assign([TopicPartition("t", i) for i in range(3)])
        client.poll(1.0)
        return lambda: (client.poll(1.0), None)[1]
    client.describe_cluster(5.0)

    def describe() -> None:
        try:
            client.describe_cluster(1.0)
        except KafkaError:
            return
        world.advance(1.0)

    return describe


@pytest.fixture
def said(world: World, caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[float, str]]]:
    """Return the log at INFO and above, with virtual times."""
    lines: list[tuple[float, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((world.now, record.getMessage()))

    caplog.set_level(logging.INFO, "odradek")
    logger = logging.getLogger("odradek")
    handler = Handler(logging.INFO)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.mark.parametrize(("fault", "kind"), pairs(FAULTS, KINDS))
def test_the_log_of_a_two_minute_outage_is_short_and_complete(
    kind: str,
    fault: str,
    world: World,
    cluster: SimulatedCluster,
    simulated_client: Callable[..., Any],
    said: list[tuple[float, str]],
) -> None:
    cluster.create_topic("t", partitions=3)
    work = at_work(kind, world, cluster, simulated_client)
    assert said == []
    begin = world.now
    FAULTS[fault](world, cluster)
    while world.now < begin + OUTAGE + TAIL:
        work()
    lines = [text for _, text in said]
    report = "\n".join(lines)
    assert len(lines) < LIMIT, report
    assert all(line.startswith(f"[{kind}] ") for line in lines)
    begun = re.compile(rf"\[{kind}\] outage started.*: (known broker|bootstrap address) \S+: \S+")
    assert begun.match(lines[0]), report
    assert said[0][0] < begin + 5.0
    assert any("rebootstrap: " in line for line in lines), report
    if fault.startswith("flapping"):
        assert re.search(
            r"unstable: \d+ outages in a row, down for .* of the last .* s, now", report
        )
        assert ", now up; " in [line for line in lines if "unstable" in line][-1], report
        return
    assert sum("rebootstrap: " in line for line in lines) == 1, (
        report
    )  # one line for the whole outage
    assert sum("outage started" in line for line in lines) == 1, report
    still = [(at, text) for at, text in said if "outage continues after" in text]
    assert len(still) >= 3, report
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(still)]
    assert all(b > 1.5 * a for a, b in itertools.pairwise(gaps)), report
    counts = re.compile(
        r"bootstrap addresses: \d+ connection attempts?, \d+ failure.*failed metadata refresh"
    )
    assert counts.search(still[-1][1]), report
    (over,) = [line for line in lines if "outage over after" in line]
    seconds = float(re.findall(r"over after ([\d.]+) s", over)[0])
    assert OUTAGE - 5.0 < seconds < OUTAGE + 20.0, report


def test_the_log_counts_the_real_connection_attempts(
    world: World, cluster: SimulatedCluster, said: list[tuple[float, str]]
) -> None:
    client = on_host(world.host(), odradek.Admin, bootstrap_servers=cluster.bootstrap_servers)
    client.describe_cluster(5.0)
    world.dials.clear()
    refused(world, cluster)
    with pytest.raises(odradek.NoBrokerAvailableError):
        client.describe_cluster(OUTAGE - 1.0)
    client.describe_cluster(10.0)
    world.advance(5.0)
    (over,) = [line for _, line in said if "outage over" in line]
    ((known, bootstrap),) = re.findall(
        r"known brokers: (\d+) conn.*?bootstrap addresses: (\d+) conn", over
    )
    front = cluster.bootstrap_servers.partition(":")[0]
    front_ip = world.dns[front][0]
    accepted = [d for d in world.dials if d.outcome == "accepted"]
    until = accepted[0].at
    seen = [d for d in world.dials if d.at <= until]
    assert int(bootstrap) == sum(d.ip == front_ip for d in seen)
    assert int(known) == sum(d.ip != front_ip for d in seen)
    client.close()


def test_one_dead_broker_is_logged_in_two_lines(
    world: World,
    cluster: SimulatedCluster,
    simulated_client: Callable[..., Any],
    said: list[tuple[float, str]],
) -> None:
    cluster.create_topic("t", partitions=3)
    work = at_work("consumer", world, cluster, simulated_client)
    cluster.crash(2)
    for _ in range(60):
        work()
    begun, over = (text for _, text in said)
    assert "outage started: known broker" in begun
    assert "other brokers answer, and" in over


def test_each_event_is_logged_at_debug_level(
    world: World, cluster: SimulatedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "odradek")
    host = world.host("c")
    client = on_host(host, odradek.Admin, bootstrap_servers=cluster.bootstrap_servers)
    client.describe_cluster(5.0)
    client.close()
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert logged == [f"[odradek] {event}" for event in host.trace.events]
    assert len(logged) > 5
