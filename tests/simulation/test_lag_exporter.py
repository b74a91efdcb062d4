"""`odradek groups lag --prometheus`: what is told of groups, with the client that ships."""

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
    """A cluster, an admin client that sets where groups are, and an exporter."""

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
        """The series of a family, by the values of their labels."""
        families = text_string_to_metric_families(
            b"".join(self.exporter.pieces(self.admin)).decode()
        )
        samples = [s for family in families for s in family.samples if s.name == name]
        return {tuple(s.labels.values()): s.value for s in samples}

    def one(self, name: str) -> float:
        (value,) = self.told(name).values()
        return value

    def at(self, group: str, **offsets: int) -> None:
        """Set where a group is: `p0=5`."""
        places = {TopicPartition("t", int(p[1:])): offset for p, offset in offsets.items()}
        self.setting.alter_group_offsets(group, places)


@pytest.fixture
def scene() -> Iterator[Scene]:
    one = Scene()
    yield one
    one.admin.close(0.0)
    one.setting.close(0.0)


def test_all_groups_and_partitions_are_told(scene: Scene) -> None:
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


def test_members_and_what_they_have_not_committed(scene: Scene) -> None:
    scene.write(range(6))
    member = scene.consumer(group_id="g")
    member.subscribe(["t"])
    scene.read(member, 6)
    scene.look()
    assert scene.told("kafka_consumergroup_members") == {("g",): 1}
    assert scene.told("kafka_consumergroup_state") == {("g", "Stable"): 1}
    assert scene.told(LAG) == {}, "nothing was committed, so nobody knows what is left"
    member.commit()
    scene.look()
    assert set(scene.told(LAG).values()) == {0}
    member.close()


def test_a_lag_in_seconds_is_near_the_records_age(scene: Scene) -> None:
    """Also of records from before the exporter's first look."""
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


def test_ends_and_times_of_all_groups_are_asked_together(scene: Scene) -> None:
    """At each leader, however many groups there are."""
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
    # The brokers and the leaders are asked for once, each broker for its groups, for what they are
    # (first as one kind, then as the other), for what is committed, and for ends of logs.
    assert asked.total() <= 2 + 5 * 3, asked


def test_a_look_that_fails_leaves_what_was_told(scene: Scene) -> None:
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


def test_what_is_wrong_is_said_once_for_as_long_as_it_lasts(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was tried in vain, and how long ago, is another in each look."""
    scene.at("g", p0=1)
    told: set[str] = set()
    for turn, lines in enumerate((0, 1, 0, 0)):
        told = exporting._look(scene.run, scene.exporter, told)
        said = capsys.readouterr().err
        assert said.count("test: ") == lines, said
        if turn == 0:
            for broker in scene.cluster.brokers:
                scene.cluster.crash(broker)


def test_all_scrapes_of_a_look_share_its_text(scene: Scene) -> None:
    """Sixteen readers that hardly read hold it once, not sixteen times."""
    scene.at("g", p0=0)
    scene.look()
    first, second = (scene.exporter.pieces(scene.admin)[1] for _ in range(2))
    assert b'consumergroup="g"' in first
    assert first is second
    assert exporting._encoded("\ud800") == b"?", "what a broker says may be no text"


def test_a_last_look_that_has_seen_nothing_is_an_error(scene: Scene) -> None:
    for broker in scene.cluster.brokers:
        scene.cluster.crash(broker)
    assert exporting._look(scene.run, scene.exporter, set())
    with pytest.raises(KafkaTimeoutError):
        exporting._look(scene.run, scene.exporter, set(), last=True)


def test_the_cluster_moves(scene: Scene) -> None:
    scene.write(range(9))
    scene.at("g", p0=1)
    scene.look()
    scene.cluster.move(after=3.0)
    scene.look()
    assert scene.told(LAG) == {("g", "t", "0"): 2}
    assert scene.one("odradek_lag_up") == 1


def test_what_one_group_is_refused_hides_no_other(scene: Scene) -> None:
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


def test_a_silent_broker_hides_no_group_of_the_others(scene: Scene) -> None:
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


def test_groups_that_are_included() -> None:
    scene = Scene(GroupSelection(include=re.compile("bill.*")))
    scene.write(range(9))
    scene.at("billing", p0=1)
    scene.at("no-bills", p0=1)
    scene.look()
    assert set(scene.told(LAG)) == {("billing", "t", "0")}


def test_no_more_is_told_than_is_allowed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MOST_ROWS", 2)
    scene.write(range(9))
    scene.at("g", p0=0, p1=1, p2=2)
    scene.look()
    assert set(scene.told(LAG).values()) == {3, 2}
    assert scene.one("odradek_lag_partitions_left_out") == 1


def test_a_time_that_is_refused_is_told(scene: Scene) -> None:
    """The lag in records is there all the same."""
    scene.write(range(9))
    scene.world.advance(100.0)
    scene.at("g", p0=1)
    scene.look()
    refused: list[Any] = []

    class ByTime(Injection):
        """Refuses records by time alone."""

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
