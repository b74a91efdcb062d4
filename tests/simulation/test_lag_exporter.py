"""`odradek groups lag --prometheus`: the metrics of groups, from a simulated cluster."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.cli.frame.commands import AdminRun
from odradek.cli.groups import exporting
from odradek.cli.groups.exporting import LagExporter
from odradek.cli.groups.lookup import GroupSelection
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition
from odradek.simulation.brokers.injected_errors import Injection

LAG, SECONDS = "kafka_consumergroup_lag", "kafka_consumergroup_lag_seconds"
INTERVAL = 15.0


class Scene(Stage):
    """A cluster, an admin client that commits offsets, and an exporter."""

    def __init__(self, groups: GroupSelection = GroupSelection(), timeout: float = 10.0) -> None:  # noqa: B008
        super().__init__()
        self.admin = self.client(Admin, "exporter")
        self.setting = self.client(Admin, "setting")
        self.run = AdminRun(self.admin, timeout, "test", dry_run=False, yes=False, json=False)
        time = self.world.wall_clock
        self.exporter = LagExporter(groups, INTERVAL, time, lambda: self.world.now)

    def look(self) -> None:
        self.exporter.look(self.run)

    def told(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the series of a family by the values of their labels."""
        families = text_string_to_metric_families(
            b"".join(self.exporter.pieces(self.admin)).decode()
        )
        samples = [s for family in families for s in family.samples if s.name == name]
        return {tuple(s.labels.values()): s.value for s in samples}

    def one(self, name: str) -> float:
        (value,) = self.told(name).values()
        return value

    def at(self, group: str, **offsets: int) -> None:
        """Commit offsets of a group by partition: `p0=5` commits 5 for partition 0."""
        places = {TopicPartition("t", int(p[1:])): offset for p, offset in offsets.items()}
        self.setting.alter_group_offsets(group, places)


@pytest.fixture
def scene() -> Iterator[Scene]:
    one = Scene()
    yield one
    one.admin.close(0.0)
    one.setting.close(0.0)


def test_all_groups_and_partitions_are_exported(scene: Scene) -> None:
    scene.write(range(30))
    scene.at("a", p0=4, p1=10)
    scene.at('b"\\\n', p2=0)
    scene.look()
    assert scene.told(LAG) == {("a", "t", "0"): 6, ("a", "t", "1"): 0, ('b"\\\n', "t", "2"): 10}
    assert scene.told("kafka_consumergroup_current_offset")["a", "t", "0"] == 4
    assert scene.told("kafka_topic_partition_current_offset") == {
        ("t", "0"): 10,
        ("t", "1"): 10,
        ("t", "2"): 10,
    }
    assert scene.told("kafka_consumergroup_members")["a",] == 0
    assert scene.told("kafka_consumergroup_state")["a", "Empty"] == 1
    assert scene.told("odradek_lag_errors") == {("group",): 0, ("partition",): 0, ("broker",): 0}
    assert scene.told(SECONDS)["a", "t", "1"] == 0
    assert (scene.one("odradek_lag_up"), scene.one("odradek_lag_looks_total")) == (1, 1)
    assert scene.told("odradek_dial_total"), "the exporter's own client"

    scene.at("new", p0=9)
    scene.setting.delete_groups(["a"])
    scene.look()
    assert set(scene.told(LAG)) == {("new", "t", "0"), ('b"\\\n', "t", "2")}


def test_members_and_partitions_without_commits_are_exported(scene: Scene) -> None:
    scene.write(range(6))
    member = scene.consumer(group_id="g")
    member.subscribe(["t"])
    scene.read(member, 6)
    scene.look()
    assert scene.told("kafka_consumergroup_members") == {("g",): 1}
    assert scene.told("kafka_consumergroup_state") == {("g", "Stable"): 1}
    assert scene.told(LAG) == {}, "no lag without a committed offset"
    member.commit()
    scene.look()
    assert set(scene.told(LAG).values()) == {0}
    member.close()


def test_a_lag_in_seconds_is_close_to_the_age_of_the_record(scene: Scene) -> None:
    """Include records that were written before the exporter's first collection."""
    born = []
    with scene.producer() as producer:
        for n in range(200):
            born.append(scene.world.wall_clock())
            producer.send("t", b"%d" % n, partition=0).result(5.0)
            scene.world.advance(30.0)
    scene.at("g", p0=0)
    for offset in (0, 7, 100, 150, 199):
        scene.at("g", p0=offset)
        for _ in range(6):
            scene.look()
            scene.world.advance(INTERVAL)
        true = scene.world.wall_clock() - INTERVAL - born[offset]
        assert scene.one(SECONDS) == pytest.approx(true, rel=0.05, abs=2 * INTERVAL)


def test_offsets_and_timestamps_of_all_groups_are_requested_together(scene: Scene) -> None:
    """Each leader gets one request, for any number of groups."""
    asked: Counter[str] = Counter()

    def note(_: Any, client: str, request: Any) -> None:
        if client == "exporter" and request.body is not None:
            asked[request.body.API_NAME] += 1

    scene.write(range(300))
    scene.world.advance(3600.0)
    scene.cluster.observers.append(note)
    for n in range(8):
        scene.at(f"g{n}", p0=n, p1=10 * n, p2=9)
    scene.look()
    assert len(scene.told(LAG)) == 24
    assert asked["ListOffsets"] <= 3 * (1 + exporting.QUESTIONS)
    for _ in range(5):
        scene.look()
    asked.clear()
    scene.look()
    assert asked["ListOffsets"] == 3, "what is known needn't be asked for again"
    assert asked["ListGroups"] == 3
    assert asked["FindCoordinator"] == 0, "who lists a group coordinates it"
    # Brokers and leaders are looked up once; each broker gets one request each for its groups,
    # their descriptions (of two kinds), committed offsets and log end offsets.
    assert asked.total() <= 2 + 5 * 3, asked


def test_a_collection_that_fails_keeps_the_last_values(scene: Scene) -> None:
    scene.write(range(9))
    scene.at("g", p0=1)
    assert scene.one("odradek_lag_up") == 0, "before the first look"
    assert scene.told("odradek_lag_age_seconds") == {}
    scene.look()
    for broker in scene.cluster.brokers:
        scene.cluster.crash(broker)
    with pytest.raises(KafkaTimeoutError):
        scene.look()
    assert scene.told(LAG) == {("g", "t", "0"): 2}
    assert (scene.one("odradek_lag_up"), scene.one("odradek_lag_looks_failed_total")) == (0, 1)
    assert scene.one("odradek_lag_age_seconds") == pytest.approx(5.0, abs=0.1)


def test_a_permanent_error_is_logged_once(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of attempts and the elapsed time in the error's text differ each time."""
    scene.at("g", p0=1)
    told: set[str] = set()
    for turn, lines in enumerate((0, 1, 0, 0)):
        told = exporting._look(scene.run, scene.exporter, told)
        said = capsys.readouterr().err
        assert said.count("test: ") == lines, said
        if turn == 0:
            for broker in scene.cluster.brokers:
                scene.cluster.crash(broker)


def test_all_scrapes_share_one_copy_of_the_exported_text(scene: Scene) -> None:
    """Sixteen slow readers don't need sixteen copies."""
    scene.at("g", p0=0)
    scene.look()
    first, second = (scene.exporter.pieces(scene.admin)[1] for _ in range(2))
    assert b'consumergroup="g"' in first
    assert first is second
    assert exporting._encoded("\ud800") == b"?", "what a broker says may be no text"


def test_a_single_collection_raises_if_the_cluster_is_unreachable(scene: Scene) -> None:
    for broker in scene.cluster.brokers:
        scene.cluster.crash(broker)
    assert exporting._look(scene.run, scene.exporter, set())
    with pytest.raises(KafkaTimeoutError):
        exporting._look(scene.run, scene.exporter, set(), last=True)


def test_collections_succeed_after_the_cluster_moved(scene: Scene) -> None:
    scene.write(range(9))
    scene.at("g", p0=1)
    scene.look()
    scene.cluster.move(after=3.0)
    scene.look()
    assert scene.told(LAG) == {("g", "t", "0"): 2}
    assert scene.one("odradek_lag_up") == 1


def test_an_error_of_one_group_does_not_affect_other_groups(scene: Scene) -> None:
    scene.write(range(9))
    scene.at("a", p0=1)
    scene.at("b", p0=1)
    leader = scene.cluster.leader("t", 0)
    assert leader is not None
    leader.injections.append(Injection("ListOffsets", 6, 1 << 60))
    scene.exporter = LagExporter(
        GroupSelection(["a", "absent"]), INTERVAL, lambda: 0.0, lambda: 0.0
    )
    scene.run = AdminRun(scene.admin, 3.0, "test", dry_run=False, yes=False, json=False)
    scene.look()
    assert scene.told(LAG) == {}
    assert scene.told("kafka_consumergroup_current_offset") == {("a", "t", "0"): 1}
    assert scene.told("odradek_lag_errors") == {("group",): 1, ("partition",): 1, ("broker",): 0}
    assert scene.exporter.answer().failed
    assert not scene.exporter.answer(told_to_end=True).failed


def test_groups_of_other_brokers_are_exported_if_a_broker_is_silent(scene: Scene) -> None:
    scene.write(range(9))
    for n in range(9):
        scene.at(f"g{n}", p0=1)
    scene.look()
    assert len(scene.told(LAG)) == 9
    leader = scene.cluster.leader("t", 0)
    assert leader is not None
    silent = next(n for n in scene.cluster.brokers if n != leader.id)
    scene.cluster.pause(silent)
    scene.look()
    assert 0 < len(scene.told(LAG)) < 9
    assert scene.told("odradek_lag_errors")["broker",] == 1
    assert scene.one("odradek_lag_up") == 1


def test_only_included_groups_are_exported() -> None:
    scene = Scene(GroupSelection(include=re.compile("bill.*")))
    scene.write(range(9))
    scene.at("billing", p0=1)
    scene.at("no-bills", p0=1)
    scene.look()
    assert set(scene.told(LAG)) == {("billing", "t", "0")}


def test_the_number_of_exported_series_is_limited(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "MOST_ROWS", 2)
    scene.write(range(9))
    scene.at("g", p0=0, p1=1, p2=2)
    scene.look()
    assert set(scene.told(LAG).values()) == {3, 2}
    assert scene.one("odradek_lag_partitions_left_out") == 1


def test_a_refused_timestamp_lookup_is_logged(scene: Scene) -> None:
    """The lag in records is exported anyway."""
    scene.write(range(9))
    scene.world.advance(100.0)
    scene.at("g", p0=1)
    scene.look()
    refused: list[Any] = []

    class ByTime(Injection):
        """A fault: brokers refuse to look up offsets by timestamp."""

        def answering(self, body: Any, reply: Any) -> Any:
            if any(p.timestamp >= 0 for t in body.topics for p in t.partitions):
                refused.append(body)
                return super().answering(body, reply)
            return reply

    again = LagExporter(GroupSelection(), INTERVAL, scene.world.wall_clock, lambda: scene.world.now)
    scene.exporter = again
    for broker in scene.cluster.brokers.values():
        broker.injections.append(ByTime("ListOffsets", 29, 1 << 60))
    scene.look()
    assert refused
    assert scene.told(LAG) == {("g", "t", "0"): 2}
    assert scene.told(SECONDS) == {}
    assert scene.told("odradek_lag_errors")["partition",] == 1
