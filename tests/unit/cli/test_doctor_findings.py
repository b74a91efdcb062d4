"""Test findings of `odradek doctor` for situations that integration tests can't create."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek import Admin
from odradek.cli.doctor.checks import checks
from odradek.cli.doctor.environment import DoctorEnvironment, certificates, in_container
from odradek.cli.doctor.findings import STATUSES, Finding, Seen, Trouble, findings
from odradek.clients.admin.cluster_facts import ClusterClock
from odradek.clients.admin.examination import Examination, GroupStanding
from odradek.clients.admin.reachability import (
    AddressReach,
    Reachability,
    TopicReach,
    TopicStanding,
)
from odradek.clients.admin.users import ClientQuotaEntity
from odradek.clients.descriptions import authorized_operations
from odradek.clients.explain.causes import CLOSES, HALF_DEAD
from odradek.common.config import ADMIN, Config
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.types import TopicPartition

NOW, DAY = 1_800_000_000.0, 86400.0
WELL = Reachability("c", (AddressReach("h:1", True, (1,), None, 3),), (), (), None)
PICTURE = Admin(bootstrap_servers="h:1").explain()


def found(
    examined: Examination, around: DoctorEnvironment | None = None, protocol: str = "PLAINTEXT"
) -> list[Finding]:
    seen = Seen(PICTURE, None, examined, protocol, None, around or DoctorEnvironment())
    listed = findings(seen)
    assert next(step.step for step in checks(seen, listed)) == "name"
    return listed


def test_a_healthy_cluster_has_no_findings() -> None:
    assert found(Examination(WELL, None)) == []


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(300.0, "300 s ahead of"), (-90.0, "90 s behind"), (59.0, None), (-59.0, None)],
)
def test_a_clock_that_differs_by_a_minute_is_reported(ahead: float, words: str | None) -> None:
    """The cluster's time was requested 2 s before this machine's clock was read."""
    around = DoctorEnvironment(now=NOW + ahead + 2.0, at=52.0)
    listed = found(Examination(WELL, None, clock=ClusterClock(NOW, 50.0, 0.01)), around)
    assert [one.kind for one in listed] == ([Trouble.CLOCK] if words else [])
    assert all(f"The clock of this machine is {words} the cluster's." == f.what for f in listed)


def test_a_clock_is_not_reported_as_wrong_after_a_slow_response() -> None:
    around = DoctorEnvironment(now=NOW + 70.0, at=50.0)
    assert found(Examination(WELL, None, clock=ClusterClock(NOW, 50.0, 80.0)), around) == []


@pytest.mark.parametrize("days", [3.0, 20.0])
def test_a_certificate_that_expires_soon_is_reported(days: float) -> None:
    around = DoctorEnvironment(certificates={"h:1": NOW + days * DAY}, now=NOW)
    listed = found(Examination(WELL, None), around, "SSL")
    assert [one.what for one in listed] == (
        ["The certificate of h:1 expires in 3 days."] if days < 14 else []
    )
    assert not any(one.grave for one in listed)


def test_quotas_are_reported_as_minor_findings() -> None:
    entity = ClientQuotaEntity("alice", ClientQuotaEntity.DEFAULT)
    (note,) = found(Examination(WELL, None, quotas={entity: {"producer_byte_rate": 1024.0}}))
    assert not note.grave
    assert note.what == (
        "There is a quota for user 'alice' with any client-id without a quota of its own: "
        "producer_byte_rate 1024."
    )


def test_an_api_without_a_common_version_is_reported() -> None:
    (one,) = found(Examination(WELL, None, lacking={"h:1": ("Produce has versions 99 to 100",)}))
    assert (one.kind, one.grave) == (Trouble.PROTOCOL, True)
    assert "no version in common of a required API: Produce has" in one.what


def test_lag_and_state_of_a_group_are_reported() -> None:
    waiting = {TopicPartition("t", 0): 7}
    group = GroupStanding("board", None, {TopicPartition("t", 0): 3}, waiting, "Empty", 0)
    (note,) = found(Examination(WELL, group))
    assert note.what == "Group board has a lag of 7 records, but no members to read them."
    (usual,) = found(Examination(WELL, replace(group, state="Stable", members=2)))
    assert "the largest in t-0 (7)" in usual.what
    (waits,) = found(Examination(WELL, replace(group, state="PreparingRebalance", members=2)))
    assert "is rebalancing (PreparingRebalance, 2 members)" in waits.what
    assert "killed member until its session.timeout.ms expires" in waits.why
    assert "odradek groups members board --bootstrap-server h:1" in waits.cure


def test_findings_are_ordered_from_the_network_to_the_group() -> None:
    reach = replace(
        WELL,
        addresses=(*WELL.addresses, AddressReach("h:2", False, (2,), KafkaError("away"), 1, 0.5)),
        topics=(TopicReach("t", 3, (1,)), TopicReach("u", 0, (), KafkaError("odd"))),
        absent=(3,),
        standings=(TopicStanding("t", 3, (0,), frozenset({"DESCRIBE"})),),
    )
    kinds = [one.kind for one in found(Examination(reach, None))]
    assert kinds == sorted(kinds, key=list(Trouble).index)
    assert kinds[0] is Trouble.ADVERTISED
    assert set(kinds) >= {
        Trouble.RIGHTS,
        Trouble.LEADERLESS,
        Trouble.UNDER_REPLICATED,
        Trouble.OTHER,
    }
    assert sorted(STATUSES) == sorted(Trouble)
    assert len(set(STATUSES.values())) == len(Trouble)


def test_control_characters_in_brokers_texts_are_escaped() -> None:
    reach = replace(WELL, topics=(TopicReach("t", 0, (), KafkaError("\x1b[2J")),))
    (one,) = found(Examination(reach, None))
    assert "\x1b" not in one.what


def test_authorized_operations_are_decoded_from_a_bit_field() -> None:
    assert authorized_operations(-(2**31)) is None
    assert authorized_operations(1 << 3 | 1 << 8) == frozenset({"READ", "DESCRIBE"})
    assert authorized_operations(0) == frozenset()


@pytest.mark.parametrize("variable", ["container", "KUBERNETES_SERVICE_HOST"])
def test_a_run_inside_a_container_is_detected(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("odradek.cli.doctor.environment.MARKS", (str(tmp_path / "none"),))
    for name in ("container", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert not in_container()
    monkeypatch.setenv(variable, "yes")
    assert in_container()
    monkeypatch.delenv(variable)
    (tmp_path / "mark").touch()
    monkeypatch.setattr("odradek.cli.doctor.environment.MARKS", (str(tmp_path / "mark"),))
    assert in_container()


def test_without_tls_no_certificate_is_requested() -> None:
    assert certificates(Config(ADMIN, {"bootstrap.servers": "h:1"}), ["h:1"]) is None


def test_an_address_that_was_not_tried_is_not_reported_as_reachable() -> None:
    """Of fifty bootstrap addresses, the last ones may not be tried within the timeout."""
    steps = checks(Seen(PICTURE, KafkaError("no answer"), None, "PLAINTEXT"), [])
    assert {step.state for step in steps} == {"-"}


def test_a_check_that_was_not_requested_is_listed_with_its_flag() -> None:
    """The 50 partitions of Kafka's internal topic are mentioned separately."""
    topics = tuple(
        TopicStanding(name, count, (), None)
        for name, count in (("t", 3), ("__consumer_offsets", 50))
    )
    reached = replace(WELL, standings=topics)
    steps = {
        s.step: s for s in checks(Seen(PICTURE, None, Examination(reached, None), "PLAINTEXT"), [])
    }
    assert steps["topics"].detail == "2 topics, 53 partitions, including Kafka's internal topics"
    assert (steps["permissions"].state, steps["permissions"].detail) == (
        "-",
        "checked with --topic",
    )
    assert (steps["group"].state, steps["group"].detail) == ("-", "checked with --group")


def test_the_topics_check_says_how_many_of_the_topics_named_by_the_user_exist() -> None:
    seen = Seen(PICTURE, None, Examination(WELL, None), "PLAINTEXT", topics_named=True)
    steps = {step.step: step for step in checks(seen, [])}
    assert steps["topics"].detail == "found 0 of the named topics, 0 partitions"


@pytest.mark.parametrize(("meaning", "state"), [(CLOSES.meaning, "-"), (HALF_DEAD.meaning, "ok")])
def test_the_kafka_protocol_check_is_ok_only_if_the_broker_has_answered(
    meaning: str, state: str
) -> None:
    (start,) = PICTURE.addresses
    failed = replace(start, stage="broker", meaning=meaning)
    seen = Seen(replace(PICTURE, addresses=(failed,)), None, None, "PLAINTEXT")
    steps = {step.step: step for step in checks(seen, [])}
    assert steps["Kafka's protocol"].state == state
    assert (steps["answers"].state, steps["answers"].detail) == ("wrong", meaning)


def test_permissions_that_brokers_do_not_report_are_shown_as_unknown() -> None:
    reached = replace(WELL, standings=(TopicStanding("t", 3, (), None),))
    seen = Seen(PICTURE, None, Examination(reached, None), "PLAINTEXT", topics_named=True)
    rights = next(step for step in checks(seen, []) if step.step == "permissions")
    assert (rights.state, rights.detail) == ("-", "not reported by the brokers")


def test_a_missing_coordinator_is_not_reported_while_the_client_is_throttled() -> None:
    """While a broker throttles the client for a minute, no lookup ends within the timeout."""
    slowed = replace(WELL, addresses=(replace(WELL.addresses[0], throttle=60.0),))
    group = GroupStanding(
        "g", KafkaTimeoutError("timed out waiting for the coordinator of group g")
    )
    assert [one.kind for one in found(Examination(slowed, group))] == [Trouble.THROTTLED]
    assert [one.kind for one in found(Examination(WELL, group))] == [Trouble.GROUP]


def test_a_committed_offset_outside_of_the_log_is_reported() -> None:
    at = TopicPartition("t", 0)
    group = GroupStanding("g", None, {at: 9}, {at: 0}, outside={at: (20, 30)})
    (one,) = found(Examination(WELL, group))
    assert (one.kind, one.grave) == (Trouble.GROUP, True)
    assert one.what == (
        "Group g has committed offset 9 of t-0, which doesn't exist: the log has offsets 20 to 30."
    )


@pytest.mark.parametrize(("user", "principal"), [("al ice", "'User:al ice'"), (None, "User:…")])
def test_the_suggested_acl_command_names_the_user(user: str | None, principal: str) -> None:
    topic = TopicStanding("t", 3, (), frozenset({"DESCRIBE"}))
    reached = replace(WELL, standings=(topic,))
    seen = Seen(PICTURE, None, Examination(reached, None), "SASL_SSL", topics_named=True, user=user)
    (found,) = findings(seen)
    assert f"--allow-principal {principal} --operation READ --topic t" in found.cure
    assert "WRITE to produce" in found.cure
