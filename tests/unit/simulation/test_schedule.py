"""Files of fault schedules: they are read as they were written, and errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.volume import part

from odradek.simulation.faults.fault_table import ScheduleError
from odradek.simulation.runs.random_schedules import FAMILIES, Family, random_schedule
from odradek.simulation.runs.schedule import (
    Schedule,
    ScheduledClient,
    from_json,
    load,
    settings,
    validate,
)

MEMBER: dict[str, Any] = {"name": "one", "kind": "member"}
SMALLEST: dict[str, Any] = {"seed": 1, "clients": [{"name": "one", "kind": "metadata"}]}


@pytest.mark.parametrize("short", [True, False])
def test_random_fault_schedules_are_valid_and_equal_after_a_json_round_trip(short: bool) -> None:
    for seed in range(part(300, 20)):
        schedule = random_schedule(seed, short=short)
        validate(schedule)
        assert schedule == random_schedule(seed, short=short)
        assert from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_schedules_of_each_family_are_valid(family: Family, short: bool) -> None:
    for seed in range(part(100, 10)):
        schedule = random_schedule(seed, short=short, family=family)
        validate(schedule)
        assert schedule == random_schedule(seed, short=short, family=family)
        assert from_json(schedule.to_json()) == schedule


def test_most_fields_of_a_schedule_file_are_optional() -> None:
    schedule = from_json(json.dumps(SMALLEST))
    assert schedule == Schedule(1, (ScheduledClient("one", "metadata"),))
    assert str(schedule).startswith("seed 1: 3 brokers, 1 partitions, messages; one (5 operations)")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 2}, "format 2 isn't known; this release reads 1"),
        ({"sed": 1}, "schedule has no 'sed'"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"brokers": 0}, "brokers must be a whole number of 1 to 100, not 0"),
        ({"mode": "words"}, "mode must be bytes or messages"),
        ({"heal_at": -1}, "heal_at must be a number"),
        ({"link": {"loss": "much"}}, "link: loss must be a number"),
        ({"link": 3}, "link must be a JSON object"),
        ({"clients": {}}, "clients must be a list"),
        ({"clients": []}, "needs a client"),
        ({"clients": [{"name": "one"}]}, "client 1: .*kind"),
        ({"clients": [{"name": "one", "kind": "reader"}]}, "kind must be one of producer"),
        ({"clients": SMALLEST["clients"] * 2}, "the same name"),
        (
            {"clients": [{"name": "one", "kind": "producer", "config": {"linger": 5}}]},
            "one: unknown option 'linger'",
        ),
        ({"faults": [{"at": 1, "verb": "crash", "arguments": {"i": 9}}]}, "fault 1: crash: i must"),
        ({"faults": [{"verb": "heal"}]}, "fault 1: .*at"),
        ({"topics": ["u"]}, "topics must be a JSON object"),
        ({"topics": {"u": 0}}, "topic u must be a whole number of 1 to 1000, not 0"),
        (
            {"topics": {"t": 1}},
            "topics: 't' isn't a valid topic name, or is a topic that always exists",
        ),
        ({"cluster": {"brokers": 3}}, r"cluster has no 'brokers' \(it has: coordinators"),
        ({"cluster": {"marker_delay": "1"}}, "cluster: marker_delay must be a number"),
        ({"clients": [{**MEMBER, "habits": {"pol": 1}}]}, "one: habits: no 'pol' among poll"),
        ({"clients": [{**MEMBER, "habits": {"most": 0}}]}, "one: habits: most can't be 0"),
        ({"clients": [{**MEMBER, "habits": {"raises": 1}}]}, "habits: raises can't be 1"),
        ({"clients": [{**MEMBER, "habits": 3}]}, "one: habits must be a JSON object"),
        ({"clients": [{**MEMBER, "writes": 3}]}, "one: writes must be a JSON object"),
        ({"clients": [{**MEMBER, "kind": "processor"}]}, "processors need further topics to read"),
        ({"clients": [{**MEMBER, "kind": "processor", "writes": {"acks": 9}}]}, "one: .*acks"),
        ({"clients": [MEMBER, {"name": "two", "kind": "admin"}]}, "members and processors can"),
        (
            {"faults": [{"at": 1, "verb": "grow_topic", "arguments": {"count": 1, "topic": "x"}}]},
            "grow_topic: topic must be one of the schedule's topics",
        ),
    ],
)
def test_errors_in_a_schedule_are_reported(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        from_json(json.dumps({**SMALLEST, **change}))


@pytest.mark.parametrize(("text", "complaint"), [("{", "isn't JSON"), ("[]", "a JSON object")])
def test_a_json_document_that_is_not_a_schedule_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        from_json(text)


def test_errors_name_the_schedule_file(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    with pytest.raises(ScheduleError, match=r"schedule\.json can't be read"):
        load(path)
    path.write_text(json.dumps({**SMALLEST, "brokers": "many"}))
    with pytest.raises(ScheduleError, match=r"schedule\.json: brokers must be"):
        load(path)


def test_simulated_consumers_start_at_the_earliest_offset_by_default() -> None:
    assert settings(ScheduledClient("c", "consumer"))["auto.offset.reset"] == "earliest"
    late = ScheduledClient("c", "consumer", config={"auto.offset.reset": "latest"})
    assert settings(late)["auto.offset.reset"] == "latest"
    assert settings(ScheduledClient("x", "consumer")) is settings(ScheduledClient("y", "consumer"))
