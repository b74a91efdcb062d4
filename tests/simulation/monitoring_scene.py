"""Services and the exporter of groups' lag, scraped as Prometheus does it: one of two clients, and
one of workers, which have a simulation of their own, as they live in an event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.simulation.test_lag_exporter import INTERVAL, Scene
from tests.unit.tools.loading import load_tool

from odradek import AsyncConsumer, AsyncProducer, AsyncWorkers, ConsumerRecord, prometheus_text
from odradek.common.errors import KafkaTimeoutError
from odradek.testing import KafkaSimulation

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/monitoring"
promql = load_tool("promql")
VARIABLES = {"__rate_interval": "30s", "client": ".*", "group": ".*"}
SCRAPE = 5.0


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, without its headings."""
    found = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


@dataclass(slots=True)
class Alert:
    """A rule, and since when its expression has had a value, by labels."""

    name: str
    query: Any
    patience: float
    since: dict[Any, float] = field(default_factory=dict)
    fired: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    """When it fired, and with which labels."""

    def evaluate(self, scrapes: Any, now: float) -> None:
        """What Prometheus does at each evaluation."""
        found = self.query.value(scrapes, now)
        self.since = {labels: self.since.get(labels, now) for labels in found}
        self.fired += [
            (now, dict(labels)) for labels, at in self.since.items() if now - at >= self.patience
        ]


def alerts() -> list[Alert]:
    """The rules, in their order."""
    groups = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    return [
        Alert(rule["alert"], promql.read(rule["expr"]), seconds(rule.get("for", "0s")))
        for group in groups
        for rule in group["rules"]
    ]


def seconds(text: str) -> float:
    """`2m` is 120."""
    found = re.fullmatch(r"(\d+)([smh])", text)
    assert found is not None, text
    return int(found[1]) * float({"s": 1, "m": 60, "h": 3600}[found[2]])


class MonitoredService(Scene):
    """Writes ten records a second and reads them, until it is told to stop either."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.reads = True
        self.scrapes = promql.Scrapes()
        self.alerts = alerts()
        self.producer_ = self.producer(client_id="orders", delivery_timeout_ms=600_000)
        self.consumer_ = self.consumer(client_id="billing", group_id="bills")
        self.consumer_.subscribe(["t"])

    def live(self, length: float) -> None:
        """So many virtual seconds: work, scrapes, evaluations, and looks of the exporter."""
        end, looked = self.world.now + length, 0.0
        while self.world.now < end:
            if self.writes:
                for n in range(50):
                    self.producer_.send("t", b"x", partition=n % 3)
            if self.reads:
                for _ in self.consumer_.poll(0.0):
                    pass
                self.consumer_.commit_async()
            if self.world.now >= looked:
                looked = self.world.now + INTERVAL
                with suppress(KafkaTimeoutError):
                    self.look()
            self.world.advance(SCRAPE)
            self.scrape()

    def scrape(self) -> None:
        now = self.world.now
        self.scrapes.add(now, "service", prometheus_text(self.producer_, self.consumer_))
        self.scrapes.add(now, "exporter", b"".join(self.exporter.pieces(self.admin)).decode())
        for alert in self.alerts:
            alert.evaluate(self.scrapes, now)

    def fired(self) -> set[str]:
        return {alert.name for alert in self.alerts if alert.fired}

    def firing(self) -> set[str]:
        return {a.name for a in self.alerts if a.fired and a.fired[-1][0] == self.world.now}

    def close(self) -> None:
        for client in (self.producer_, self.consumer_, self.admin, self.setting):
            client.close(0.0)


class MonitoredWorkers:
    """Ten records a second for workers that give each three attempts, then a dead letter."""

    def __init__(self, work: Callable[[ConsumerRecord], Awaitable[object]]) -> None:
        self.work = work
        self.alerts = alerts()

    def live(self, length: float, scrapes: Any, start: float = 0.0) -> None:
        """So many virtual seconds; what is scraped has times from `start` on."""
        with KafkaSimulation(seed=1) as simulation:
            for topic in ("t", "dead"):
                simulation.create_topic(topic, partitions=3)
            servers = {"bootstrap.servers": simulation.bootstrap_servers}
            simulation.run(self._live(servers, length, scrapes, start))

    async def _live(
        self, servers: dict[str, Any], length: float, scrapes: Any, start: float
    ) -> None:
        group = {"group.id": "mails", "client.id": "mailing", "enable.auto.commit": False}
        async with AsyncConsumer({**servers, **group}) as consumer, AsyncProducer(servers) as sends:
            options: dict[str, Any] = {"producer": sends, "dead_letter_topic": "dead"}
            workers = AsyncWorkers(consumer, self.work, max_attempts=3, **options)
            run = asyncio.create_task(workers.run("t"))
            for at in range(int(length / SCRAPE)):
                for n in range(50):
                    await sends.send("t", b"%d" % (50 * at + n), key=b"%d" % n)
                await asyncio.sleep(SCRAPE)
                now = start + SCRAPE * (at + 1)
                scrapes.add(now, "workers", prometheus_text(consumer))
                for alert in self.alerts:
                    alert.evaluate(scrapes, now)
            workers.stop()
            await run

    def fired(self) -> dict[str, list[tuple[float, dict[str, str]]]]:
        """When each alert fired, and with which labels."""
        return {alert.name: alert.fired for alert in self.alerts if alert.fired}


async def brief(_: ConsumerRecord) -> None:
    """Work that succeeds."""
    await asyncio.sleep(0.01)


def names(query: Any) -> Iterator[tuple[str, set[str]]]:
    """Each metric that an expression names, with the labels that it wants of it."""
    for selector in query.selectors:
        wanted = {label for label, _, _ in selector.matches}
        wanted.update(*(by for one, by in query.grouped if one is selector))
        yield selector.metric, wanted
