"""What `odradek doctor` makes of what was found, where no test can make it so."""

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


def test_nothing() -> None:
    assert found(Examination(WELL, None)) == []


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(300.0, "300 s ahead of"), (-90.0, "90 s behind"), (59.0, None), (-59.0, None)],
)
def test_clocks(ahead: float, words: str | None) -> None:
    """The cluster was asked 2 s before this machine looked at its clock."""
    around = DoctorEnvironment(now=NOW + ahead + 2.0, at=52.0)
    listed = found(Examination(WELL, None, clock=ClusterClock(NOW, 50.0, 0.01)), around)
    assert [one.kind for one in listed] == ([Trouble.CLOCK] if words else [])
    assert all(f"The clock of this machine is {words} the cluster's." == f.what for f in listed)


def test_a_slow_answer_says_little_of_a_clock() -> None:
    around = DoctorEnvironment(now=NOW + 70.0, at=50.0)
    assert found(Examination(WELL, None, clock=ClusterClock(NOW, 50.0, 80.0)), around) == []


@pytest.mark.parametrize("days", [3.0, 20.0])
def test_a_certificate_that_ends_soon(days: float) -> None:
    around = DoctorEnvironment(certificates={"h:1": NOW + days * DAY}, now=NOW)
    listed = found(Examination(WELL, None), around, "SSL")
    assert [one.what for one in listed] == (
        ["The certificate of h:1 expires in 3 days."] if days < 14 else []
    )
    assert not any(one.grave for one in listed)


def test_quotas_are_worth_knowing() -> None:
    entity = ClientQuotaEntity("alice", ClientQuotaEntity.DEFAULT)
    (note,) = found(Examination(WELL, None, quotas={entity: {"producer_byte_rate": 1024.0}}))
    assert not note.grave
    assert note.what == (
        "There is a quota for user 'alice' with any client-id without a quota of its own: "
        "producer_byte_rate 1024."
    )


def test_no_version_in_common() -> None:
    (one,) = found(Examination(WELL, None, lacking={"h:1": ("Produce has versions 99 to 100",)}))
    assert (one.kind, one.grave) == (Trouble.PROTOCOL, True)
    assert "no version in common of a required API: Produce has" in one.what


def test_a_group_without_members() -> None:
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


def test_the_order_is_that_of_the_way() -> None:
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


def test_texts_of_peers_are_printable() -> None:
    reach = replace(WELL, topics=(TopicReach("t", 0, (), KafkaError("\x1b[2J")),))
    (one,) = found(Examination(reach, None))
    assert "\x1b" not in one.what


def test_rights_of_a_bit_field() -> None:
    assert authorized_operations(-(2**31)) is None
    assert authorized_operations(1 << 3 | 1 << 8) == frozenset({"READ", "DESCRIBE"})
    assert authorized_operations(0) == frozenset()


@pytest.mark.parametrize("variable", ["container", "KUBERNETES_SERVICE_HOST"])
def test_containers(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
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


def test_without_tls_nobody_is_asked_for_a_certificate() -> None:
    assert certificates(Config(ADMIN, {"bootstrap.servers": "h:1"}), ["h:1"]) is None


def test_an_address_that_nobody_has_tried_is_no_good_one() -> None:
    """Of fifty bootstrap addresses the last ones may not have had their turn."""
    steps = checks(Seen(PICTURE, KafkaError("no answer"), None, "PLAINTEXT"), [])
    assert {step.state for step in steps} == {"-"}


def test_what_was_not_asked_for_says_how_to_ask() -> None:
    """And fifty partitions that nobody made are told apart."""
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


def test_topics_that_were_named_are_counted_as_such() -> None:
    seen = Seen(PICTURE, None, Examination(WELL, None), "PLAINTEXT", topics_named=True)
    steps = {step.step: step for step in checks(seen, [])}
    assert steps["topics"].detail == "found 0 of the named topics, 0 partitions"


@pytest.mark.parametrize(("meaning", "state"), [(CLOSES.meaning, "-"), (HALF_DEAD.meaning, "ok")])
def test_no_protocol_is_good_of_which_nothing_was_heard(meaning: str, state: str) -> None:
    (start,) = PICTURE.addresses
    failed = replace(start, stage="broker", meaning=meaning)
    seen = Seen(replace(PICTURE, addresses=(failed,)), None, None, "PLAINTEXT")
    steps = {step.step: step for step in checks(seen, [])}
    assert steps["Kafka's protocol"].state == state
    assert (steps["answers"].state, steps["answers"].detail) == ("wrong", meaning)


def test_rights_that_brokers_do_not_tell() -> None:
    reached = replace(WELL, standings=(TopicStanding("t", 3, (), None),))
    seen = Seen(PICTURE, None, Examination(reached, None), "PLAINTEXT", topics_named=True)
    rights = next(step for step in checks(seen, []) if step.step == "permissions")
    assert (rights.state, rights.detail) == ("-", "not reported by the brokers")


def test_a_quota_is_no_fault_of_a_coordinator() -> None:
    """Who has to keep quiet for a minute gets no answer from anybody in time."""
    slowed = replace(WELL, addresses=(replace(WELL.addresses[0], throttle=60.0),))
    group = GroupStanding(
        "g", KafkaTimeoutError("timed out waiting for the coordinator of group g")
    )
    assert [one.kind for one in found(Examination(slowed, group))] == [Trouble.THROTTLED]
    assert [one.kind for one in found(Examination(WELL, group))] == [Trouble.GROUP]


def test_a_group_whose_offset_is_not_in_the_log() -> None:
    at = TopicPartition("t", 0)
    group = GroupStanding("g", None, {at: 9}, {at: 0}, outside={at: (20, 30)})
    (one,) = found(Examination(WELL, group))
    assert (one.kind, one.grave) == (Trouble.GROUP, True)
    assert one.what == (
        "Group g has committed offset 9 of t-0, which doesn't exist: the log has offsets 20 to 30."
    )


@pytest.mark.parametrize(("user", "principal"), [("al ice", "'User:al ice'"), (None, "User:…")])
def test_the_acl_names_the_user(user: str | None, principal: str) -> None:
    topic = TopicStanding("t", 3, (), frozenset({"DESCRIBE"}))
    reached = replace(WELL, standings=(topic,))
    seen = Seen(PICTURE, None, Examination(reached, None), "SASL_SSL", topics_named=True, user=user)
    (found,) = findings(seen)
    assert f"--allow-principal {principal} --operation READ --topic t" in found.cure
    assert "WRITE to produce" in found.cure
