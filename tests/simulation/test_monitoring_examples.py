"""`examples/monitoring`: its expressions use metrics that exist and behave as its alerts need.

The Prometheus expressions themselves aren't evaluated here.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.simulation.test_lag_exporter import INTERVAL, Scene

from odradek import AsyncConsumer, AsyncProducer, AsyncWorkers, ConsumerRecord
from odradek.common.errors import KafkaTimeoutError
from odradek.monitoring import prometheus_text
from odradek.testing import KafkaSimulation

EXAMPLES = Path(__file__).parents[2] / "examples/monitoring"
SCRAPE = 5.0
QUIET = 5000
"""fetch.max.wait.ms of this consumer: few fetches."""


class Scrapes:
    """Scraped values by metric and labels."""

    def __init__(self) -> None:
        self.series: dict[str, dict[frozenset[tuple[str, str]], list[float]]] = {}

    def add(self, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = frozenset(sample.labels.items())
                self.series.setdefault(sample.name, {}).setdefault(labels, []).append(sample.value)

    def values(self, name: str, **labels: str) -> list[float]:
        """Return all values of the only series with these labels."""
        (found,) = (v for k, v in self.series[name].items() if labels.items() <= dict(k).items())
        return found


class MonitoredService(Scene):
    """A service that writes a record per second and reads them, until either is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.reads = True
        self.scrapes = Scrapes()
        self.producer_ = self.producer(client_id="orders", delivery_timeout_ms=600_000)
        self.consumer_ = self.consumer(
            client_id="billing", group_id="bills", fetch_max_wait_ms=QUIET
        )
        self.consumer_.subscribe(["t"])

    def live(self, length: float) -> None:
        """Work, scrape and collect as the exporter does, for this virtual time."""
        end, looked = self.world.now + length, 0.0
        while self.world.now < end:
            if self.writes:
                for n in range(5):
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
            self.scrapes.add(prometheus_text(self.producer_, self.consumer_))
            self.scrapes.add(b"".join(self.exporter.pieces(self.admin)).decode())

    def close(self) -> None:
        for client in (self.producer_, self.consumer_, self.admin, self.setting):
            client.close(0.0)


def scraped_workers(work: Callable[[ConsumerRecord], Awaitable[object]], length: float) -> Scrapes:
    """Scrape workers that read a record per second and try each three times."""
    scrapes = Scrapes()

    async def live(servers: dict[str, Any]) -> None:
        group: dict[str, Any] = {"group.id": "mails", "client.id": "mailing"}
        group |= {"enable.auto.commit": False, "fetch.max.wait.ms": QUIET}
        async with AsyncConsumer({**servers, **group}) as consumer, AsyncProducer(servers) as sends:
            options: dict[str, Any] = {"producer": sends, "dead_letter_topic": "dead"}
            workers = AsyncWorkers(consumer, work, max_attempts=3, **options)
            run = asyncio.create_task(workers.run("t"))
            for at in range(int(length / SCRAPE)):
                for n in range(5):
                    await sends.send("t", b"%d" % (5 * at + n), key=b"%d" % n)
                await asyncio.sleep(SCRAPE)
                scrapes.add(prometheus_text(consumer))
            workers.stop()
            await run

    with KafkaSimulation(seed=1) as simulation:
        for topic in ("t", "dead"):
            simulation.create_topic(topic, partitions=3)
        simulation.run(live({"bootstrap.servers": simulation.bootstrap_servers}))
    return scrapes


async def brief(_: ConsumerRecord) -> None:
    """Process a record in 10 ms."""
    await asyncio.sleep(0.01)


@pytest.fixture
def service() -> Iterator[MonitoredService]:
    one = MonitoredService()
    yield one
    one.close()


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    drawn = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return drawn + [rule["expr"] for rule in rules()]


def test_every_metric_and_label_exists(service: MonitoredService) -> None:
    service.live(60.0)
    told = scraped_workers(brief, 60.0).series | service.scrapes.series
    for expression in expressions():
        names = re.findall(r"\b(?:kafka|odradek)_\w+", expression)
        wanted = {w for by in re.findall(r"by \((.*?)\)", expression) for w in by.split(", ")}
        wanted |= set(re.findall(r"[{,](\w+)=~", expression))
        assert names, expression
        for name in names:
            assert name in told, expression
            assert wanted <= {label for labels in told[name] for label, _ in labels}, expression
            assert not any(math.isnan(values[-1]) for values in told[name].values()), expression


def test_metrics_show_the_start_and_the_end_of_a_cluster_move(service: MonitoredService) -> None:
    service.live(60.0)
    outages = [
        service.scrapes.values("odradek_outage_seconds", client_id=name)
        for name in ("orders", "billing")
    ]
    assert [max(values) for values in outages] == [0.0, 0.0]
    service.cluster.move(after=90.0)
    service.live(60.0)
    assert all(values[-1] > 30.0 for values in outages)  # alert KafkaOutOfReach
    service.live(120.0)
    assert [values[-1] for values in outages] == [0.0, 0.0]
    again = service.scrapes.values("odradek_rebootstrap_total", client_id="orders")
    assert again[0] < again[-1]


def test_the_lag_of_a_group_that_stops_reading_exceeds_the_threshold(
    service: MonitoredService,
) -> None:
    service.live(30.0)
    service.reads = False
    service.consumer_.close(5.0)
    service.live(340.0)
    late = service.scrapes.series["kafka_consumergroup_lag_seconds"]
    newest = {dict(labels)["topic"]: values[-1] for labels, values in late.items()}
    assert newest["t"] > 300.0  # alert KafkaGroupIsLate
    assert service.scrapes.values("kafka_consumergroup_members", consumergroup="bills")[-1] == 0


def test_the_exporter_reports_groups_that_it_cannot_read(service: MonitoredService) -> None:
    service.live(30.0)
    for broker in service.cluster.brokers:
        service.cluster.crash(broker)
    service.writes = service.reads = False
    service.live(120.0)
    assert service.scrapes.values("odradek_lag_up")[-1] == 0


def test_metrics_of_successful_workers_count_no_dead_letters() -> None:
    scrapes = scraped_workers(brief, 100.0)
    assert scrapes.values("odradek_work_dead_letter_total")[-1] == 0
    assert max(scrapes.values("odradek_work_oldest_seconds")) < SCRAPE
    assert scrapes.values("odradek_work_finished_total")[-1] == pytest.approx(100, rel=0.05)


def test_dead_letters_are_counted() -> None:
    async def work(record: ConsumerRecord) -> None:
        if record.value == b"50":  # the record at 50 s
            raise ValueError("no")

    values = scraped_workers(work, 65.0).values("odradek_work_dead_letter_total")
    assert (values[8], values[11]) == (0, 1)


def test_the_age_of_a_record_in_progress_grows() -> None:
    async def work(record: ConsumerRecord) -> None:
        await asyncio.sleep(1e6 if record.value == b"25" else 0.01)  # the record at 25 s

    values = scraped_workers(work, 345.0).values("odradek_work_oldest_seconds")
    assert values[63] < 300.0 < values[67]  # alert KafkaWorkIsStuck, at 325 s


def test_names_and_links_in_alerts_exist() -> None:
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    config = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
