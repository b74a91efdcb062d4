"""Test values and contradictions of the options of group consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.common.config import CONSUMER, Config
from odradek.common.errors import ConfigurationError

BROKER = {"bootstrap.servers": "h:1"}


def config(**given: Any) -> Config:
    return Config(CONSUMER, {**BROKER, **{k.replace("__", "."): v for k, v in given.items()}})


class CustomAssignor:
    name = "mine"
    protocol = 0

    def assign(self, members: Mapping[str, Any], topics: Mapping[str, int]) -> Sequence[Any]:
        return []


def test_the_defaults_of_group_options_are_javas() -> None:
    found = config(group__id=" g ")
    assert found["group.id"] == "g"
    assert found["group.protocol"] == "classic"
    assert found["partition.assignment.strategy"] == ("range", "cooperative-sticky")
    assert (found["session.timeout.ms"], found["heartbeat.interval.ms"]) == (45.0, 3.0)
    assert (found["max.poll.interval.ms"], found["auto.commit.interval.ms"]) == (300.0, 5.0)
    assert found["enable.auto.commit"]
    assert found["group.instance.id"] is found["group.remote.assignor"] is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("range", ("range",)),
        (" Sticky, cooperative_sticky ,", ("sticky", "cooperative-sticky")),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", ("roundrobin",)),
        (["CooperativeStickyAssignor", "round-robin"], ("cooperative-sticky", "roundrobin")),
    ],
)
def test_assignors_may_be_given_by_name_or_java_class(
    given: object, names: tuple[str, ...]
) -> None:
    assert config(partition__assignment__strategy=given)["partition.assignment.strategy"] == names


@pytest.mark.parametrize("given", [CustomAssignor, [CustomAssignor()], (CustomAssignor(),)])
def test_assignors_may_be_given_as_classes_or_objects(given: object) -> None:
    (found,) = config(partition__assignment__strategy=given)["partition.assignment.strategy"]
    assert isinstance(found, CustomAssignor)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "must name at least one assignor"),
        ([], "must name at least one assignor"),
        ("fair", "unknown assignor 'fair'; use range, roundrobin"),
        ("range,RangeAssignor", "names an assignor twice: range, range"),
        ([CustomAssignor, CustomAssignor()], "twice: mine, mine"),
        (7, "7 isn't an assignor"),
    ],
)
def test_an_empty_unknown_or_duplicate_assignor_is_rejected(given: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(partition__assignment__strategy=given)


def test_without_a_group_id_auto_commit_is_disabled() -> None:
    assert not config()["enable.auto.commit"]
    assert not config(enable__auto__commit="false")["enable.auto.commit"]
    with pytest.raises(ConfigurationError, match=r"enable.auto.commit=true needs a group.id"):
        config(enable__auto__commit=True)


@pytest.mark.parametrize(
    ("protocol", "name", "value", "instead"),
    [
        ("consumer", "session.timeout.ms", 6000, "group.consumer.session.timeout.ms"),
        ("consumer", "heartbeat.interval.ms", 100, "group.consumer.heartbeat.interval.ms"),
        ("Consumer", "partition.assignment.strategy", "range", "group.remote.assignor"),
        ("classic", "group.remote.assignor", "uniform", "partition.assignment.strategy"),
    ],
)
def test_an_option_of_the_other_group_protocol_is_rejected(
    protocol: str, name: str, value: object, instead: str
) -> None:
    given = {**BROKER, "group.id": "g", "group.protocol": protocol, name: value}
    says = rf"{name} can't be set with group.protocol=.*{instead}"
    with pytest.raises(ConfigurationError, match=says):
        Config(CONSUMER, given)


def test_the_heartbeat_interval_must_be_below_the_session_timeout() -> None:
    says = r"heartbeat.interval.ms \(3000\) must be below session.timeout.ms \(2500\)"
    with pytest.raises(ConfigurationError, match=says):
        config(session__timeout__ms=2500)


@pytest.mark.parametrize("name", ["a", "worker-1", "A.b_c-9", "...", "x" * 249, " trimmed "])
def test_instance_ids_that_java_accepts_are_accepted(name: str) -> None:
    assert config(group__instance__id=name)["group.instance.id"] == name.strip()


@pytest.mark.parametrize(
    "name", [".", "..", "é", "a/b", "a b", "a\n.b", "x:1", "x" * 250, "x" * 300, "٣", "🙂"]
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_instance_ids_that_java_rejects_are_rejected(name: str, protocol: str) -> None:
    """Java's tools and clients couldn't name a member with such an id."""
    with pytest.raises(ConfigurationError) as raised:
        config(group__id="g", group__protocol=protocol, group__instance__id=name)
    told = str(raised.value)
    assert told.startswith("group.instance.id must be 1 to 249 letters")
    assert f"not {name!r:.80}. Set" in told
    assert told.endswith("for example group.instance.id=worker-1")


@pytest.mark.parametrize("option", ["group.id", "group.instance.id"])
@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_group_id_or_instance_id_is_rejected(option: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} must be a non-empty str"):
        config(**{option.replace(".", "__"): name})


@pytest.mark.parametrize("name", ["group.id", "client.id", "client.rack"])
def test_group_client_and_rack_names_may_contain_any_characters(name: str) -> None:
    for value in (".", "..", "é", "a/b", "x" * 300):
        assert Config(CONSUMER, {**BROKER, name: value})[name] == value
