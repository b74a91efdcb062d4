"""`examples/monitoring`: a dashboard and alerts made of metrics that exist, through a move."""

from __future__ import annotations

import asyncio
import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import pytest
import yaml
from tests.simulation.monitoring_scene import (
    EXAMPLES,
    VARIABLES,
    MonitoredService,
    MonitoredWorkers,
    alerts,
    brief,
    names,
    panels,
    promql,
)
from tests.unit.tools.loading import load_tool

from odradek import ConsumerRecord

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def service() -> Iterator[MonitoredService]:
    one = MonitoredService()
    yield one
    one.close()


@pytest.fixture(scope="module")
def a_minute() -> Iterator[MonitoredService]:
    """A minute of all kinds of clients, of which tests only read."""
    one = MonitoredService()
    began = one.world.now
    one.live(60.0)
    MonitoredWorkers(brief).live(60.0, one.scrapes, began)
    yield one
    one.close()


def test_every_metric_and_label_exists(a_minute: MonitoredService) -> None:
    queries = [promql.read(t["expr"], VARIABLES) for p in panels() for t in p["targets"]]
    queries += [alert.query for alert in alerts()]
    named = {name: set[str]() for query in queries for name, _ in names(query)}
    for query in queries:
        for name, labels in names(query):
            named[name] |= labels
    told = {
        name: {label for labels in series for label, _ in labels}
        for name, series in a_minute.scrapes.series.items()
    }
    assert len(named) > 20
    assert {name: labels - told.get(name, set()) for name, labels in named.items()} == {
        name: set() for name in named
    }
    assert named.keys() <= told.keys()


def test_every_panel_has_something_to_draw(a_minute: MonitoredService) -> None:
    for panel in panels():
        for target in panel["targets"]:
            query = promql.read(target["expr"], VARIABLES)
            found = query.value(a_minute.scrapes, a_minute.world.now)
            assert found, (panel["title"], target["expr"])
            assert not any(math.isnan(value) for value in found.values()), panel["title"]


def test_the_picture_has_every_panel(a_minute: MonitoredService) -> None:
    """Drawn as tools/dashboard_picture.py draws what real brokers' clients told."""
    picture = load_tool("dashboard_picture")
    done = picture.Run(a_minute.scrapes, [10.0, 20.0], a_minute.world.now)
    drawn = picture.render(json.loads((EXAMPLES / "dashboard.json").read_text()), done)
    root = ElementTree.fromstring(drawn)  # noqa: S314 - our own text
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {panel["title"] for panel in panels()} <= set(texts)
    assert {"orders", "billing", "bills", "bills committed", "orders retried"} <= set(texts)
    assert {"mailing tried again", "mailing dead letters", "mailing waiting"} <= set(texts)
    lines = list(root.iter(f"{SVG}polyline"))
    assert len(lines) >= len(panels())
    assert "nan" not in drawn


def test_a_service_that_is_well_alerts_nobody(service: MonitoredService) -> None:
    service.live(120.0)
    assert service.fired() == set()


def test_a_move_alerts_while_the_cluster_is_away_and_then_no_more(
    service: MonitoredService,
) -> None:
    service.live(60.0)
    begun = service.world.now
    service.cluster.move(after=90.0)
    service.live(60.0)
    assert "KafkaOutOfReach" in service.firing()
    (reach,) = (alert for alert in service.alerts if alert.name == "KafkaOutOfReach")
    assert {labels["client_id"] for _, labels in reach.fired} >= {"orders", "billing"}
    # 30 s by the rule; the outage began when the first request missed its answer.
    assert begun + 30.0 <= reach.fired[0][0] <= begun + 60.0
    service.live(120.0)
    assert service.firing() == {"KafkaRebootstrap"}
    assert service.fired() <= {"KafkaOutOfReach", "KafkaRebootstrap", "KafkaLagUnknown"}
    sent = promql.read("sum(rate(kafka_producer_record_send_total[20s]))")
    assert sent.value(service.scrapes, service.world.now)[frozenset()] == pytest.approx(
        10.0, rel=0.05
    )
    service.live(600.0)
    assert service.firing() == set(), "ten minutes later the move is over for this rule, too"


def test_a_group_that_reads_no_more_is_late(service: MonitoredService) -> None:
    service.live(60.0)
    service.reads = False
    service.consumer_.close(5.0)
    service.live(360.0)
    assert "KafkaGroupIsLate" not in service.fired()
    service.live(300.0)
    assert {"KafkaGroupIsLate", "KafkaGroupHasNoMembers"} <= service.firing()
    (late,) = (alert for alert in service.alerts if alert.name == "KafkaGroupIsLate")
    assert late.fired[0][1] == {"consumergroup": "bills", "topic": "t"}


def test_workers_that_are_well_alert_nobody() -> None:
    workers = MonitoredWorkers(brief)
    workers.live(600.0, scrapes := promql.Scrapes())
    assert workers.fired() == {}
    finished = promql.read("sum(rate(odradek_work_finished_total[1m]))")
    assert finished.value(scrapes, 600.0)[frozenset()] == pytest.approx(10.0, rel=0.05)


def test_dead_letters_alert() -> None:
    async def work(record: ConsumerRecord) -> None:
        if record.value == b"1000":  # at 100 s
            raise ValueError("no")

    workers = MonitoredWorkers(work)
    workers.live(300.0, promql.Scrapes())
    assert workers.fired().keys() == {"KafkaDeadLetters"}
    at, labels = workers.fired()["KafkaDeadLetters"][0]
    assert (labels, 100.0 < at <= 110.0) == ({"client_id": "mailing"}, True)


def test_a_record_that_never_ends_alerts() -> None:
    async def work(record: ConsumerRecord) -> None:
        await asyncio.sleep(1e6 if record.value == b"1000" else 0.01)  # at 100 s

    workers = MonitoredWorkers(work)
    workers.live(500.0, promql.Scrapes())
    assert workers.fired().keys() == {"KafkaWorkIsStuck"}
    at, labels = workers.fired()["KafkaWorkIsStuck"][0]
    assert (labels, 400.0 < at <= 410.0) == ({"client_id": "mailing"}, True)


def test_what_the_exporter_cannot_see_is_said(service: MonitoredService) -> None:
    service.live(30.0)
    for broker in service.cluster.brokers:
        service.cluster.crash(broker)
    service.writes = service.reads = False
    service.live(120.0)
    assert "KafkaLagUnknown" in service.firing()


def test_all_that_an_alert_says_is_there() -> None:
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
    config = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
