"""Run commands with malicious or mistyped arguments, on simulated brokers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.admin_commands import as_json, run
from tests.time_limits import HANG_S
from typer.testing import CliRunner

from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.cli import build
from odradek.common.types import TopicPartition
from odradek.testing import FakeCluster

HUGE = "9" * 5000
"""More digits than Python converts to an int."""


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(3, topics=["flights:3", "counts"]) as cluster:
        yield cluster


def at(cluster: FakeCluster, seconds: float = 10.0) -> tuple[str, ...]:
    return ("--bootstrap-server", cluster.bootstrap_servers, "--timeout", str(seconds))


@pytest.mark.parametrize(
    "line",
    [
        "topics delete-records flights:0=HUGE --yes",
        "topics delete-records flights:HUGE=0 --yes",
        "partitions reassign flights:HUGE=1",
        "partitions reassign flights:0=HUGE",
        "partitions reassign flights:0=2147483648",
        "partitions elect-leaders flights:HUGE",
        "logdirs alter flights:0:HUGE=/x",
        "cluster set-features metadata.version=HUGE --yes",
        "groups reset-offsets g --topic flights:HUGE --to-earliest --yes",
        "groups reset-offsets g --topic flights --to-datetime HUGE --yes",
        "groups delete-offsets g --topic flights:HUGE --yes",
        "offsets list flights --time HUGE",
        "transactions producers flights:HUGE",
        "transactions abort --partition one",
        "topics create",
        "topics create-partitions flights --partitions many",
        "topics list --no-such-flag",
        "topics lst",
        "topcs list",
        "topics list --command-property request.timout.ms=5",
        "topics delete flights",
    ],
)
def test_invalid_arguments_print_json_and_exit_with_2(line: str) -> None:
    words = [word.replace("HUGE", HUGE) for word in line.split()]
    nowhere = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "0")
    found = as_json(*words, *nowhere, status=2)
    assert found["failed"] == {}
    assert found["error"]["error"] == "UsageError"
    assert found["error"]["code"] is None
    assert found["error"]["message"]


@pytest.mark.parametrize("name", [HUGE, "2147483648"])
def test_a_broker_name_that_is_no_valid_id_is_reported(fake: FakeCluster, name: str) -> None:
    for words in (("describe",), ("alter", "--set", "a=b")):
        found = as_json("configs", words[0], "broker", name, *words[1:], *at(fake), status=1)
        assert found["error"]["error"] == "ConfigurationError"
        assert "name of a broker is its id" in found["error"]["message"]


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("configs describe broker 1 99", '"name": "1"'),
        ("configs describe broker-logger 1 99", '"name": "1"'),
        ("configs alter broker 99 --set log.retention.ms=5 --dry-run", ""),
        ("logdirs describe --broker 1 --broker 99", '"broker": 1'),
        ("logdirs describe --broker 99", '"log_dirs": []'),
        ("logdirs alter flights:0:1=/x flights:0:99=/x --dry-run", '"would_move": [{'),
        ("logdirs alter flights:0:99=/x", '"moved": []'),
        ("transactions producers flights:0 --broker-id 99", ""),
        ("partitions reassign flights:0=1 flights:1=99 --dry-run", '"partition": 0'),
    ],
)
def test_a_missing_broker_is_reported_at_once(fake: FakeCluster, line: str, good: str) -> None:
    began = time.monotonic()
    code, out, err = run(*line.split(), "--json", *at(fake, 30.0))
    assert time.monotonic() - began < 5.0
    assert code == 1
    assert good in out
    assert out.count("broker 99 isn't in the cluster now; its brokers are 1, 2, 3") == 1
    assert "BrokerIdNotRegisteredError: broker 99 isn't in the cluster now" in err


def test_a_dry_run_reports_what_would_fail(fake: FakeCluster) -> None:
    found = as_json(
        "partitions", "reassign", "flights:0=1", "flights:9=1", "--dry-run", *at(fake), status=1
    )
    assert [one["partition"] for one in found["reassigned"]] == [0]
    assert "has no partition 9" in found["failed"]["flights-9"]["message"]
    found = as_json("partitions", "elect-leaders", "flights:9", "--dry-run", *at(fake), status=1)
    assert "has no partition 9" in found["failed"]["flights-9"]["message"]
    found = as_json("cluster", "unregister", "3", "77", "--dry-run", *at(fake), status=1)
    assert found["would_unregister"] == [3]
    assert list(found["failed"]) == ["77"]


@pytest.mark.parametrize(
    "line",
    [
        "topics describe flihgts counts",
        "topics delete flihgts counts --dry-run",
        "topics alter flihgts counts --set retention.ms=5000000",
        "partitions list flihgts counts",
        "configs describe topic flihgts counts",
        "offsets list flihgts counts",
        "transactions producers flihgts counts",
    ],
)
def test_the_error_about_a_misspelt_topic_suggests_a_similar_name(
    fake: FakeCluster, line: str
) -> None:
    found = as_json(*line.split(), *at(fake), status=1)
    (error,) = found["failed"].values()
    assert error["message"].count(" (did you mean flights?)") == 1
    code, _, err = run(*line.split(), *at(fake))
    assert (code, err.count("did you mean flights?")) == (1, 1)


def test_the_error_about_a_missing_partition_suggests_no_topic(fake: FakeCluster) -> None:
    found = as_json("offsets", "list", "flights:9", *at(fake), status=1)
    assert "did you mean" not in found["failed"]["flights-9"]["message"]


def test_the_error_about_a_misspelt_group_suggests_a_similar_name(fake: FakeCluster) -> None:
    as_json("groups", "reset-offsets", "billing", "--topic", "flights", "--to-earliest", "--yes",
            *at(fake))  # fmt: skip
    found = as_json("groups", "describe", "biling", "billing", *at(fake), status=1)
    assert list(found["groups"]) == ["billing"]
    message = found["failed"]["biling"]["message"]
    assert message.endswith(" (did you mean billing?)")
    assert ".;" not in message, "brokers end their sentence"


def shell(words: list[str], environment: Mapping[str, str], given: bytes = b"") -> tuple[int, str]:
    """Run a command and return its exit status and combined output."""
    if words[0] == "consume":  # consume writes to the process's file descriptor
        program = Path(sys.executable).parent / "odradek"
        read = subprocess.run(
            [program, *words], env={**os.environ, **environment}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=HANG_S, check=False,
        )  # fmt: skip
        return read.returncode, read.stdout.decode()
    done = CliRunner().invoke(build(words[0]), words, input=given, env=environment)
    return done.exit_code, done.output


@pytest.fixture
def profiles(fake: FakeCluster, tmp_path: Path) -> dict[str, str]:
    place = tmp_path / "odradek" / "config.toml"
    place.parent.mkdir()
    place.write_text(
        f"""
        [profile.here]
        bootstrap.servers = "{fake.bootstrap_servers}"
        linger.ms = 1
        max.poll.records = 7

        [profile.typo]
        bootstrap.servers = "{fake.bootstrap_servers}"
        fetch.min.bites = 5
        request.timout.ms = 5
        """
    )
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_profiles_apply_to_produce_and_consume(
    fake: FakeCluster, profiles: dict[str, str], way: str
) -> None:
    named = ["--profile", "here"] if way == "flag" else []
    environment = profiles | ({"ODRADEK_PROFILE": "here"} if way == "variable" else {})
    # A profile that a flag names doesn't mix with variables in the environment.
    if way == "flag":
        environment["ODRADEK_BOOTSTRAP_SERVER"] = "127.0.0.1:1"
    code, out = shell(["produce", "--topic", "counts", *named], environment, b"one\ntwo\n")
    assert code == 0, out
    code, out = shell(["consume", "--topic", "counts", "--exit", *named], environment)
    assert (code, out.splitlines()[:2]) == (0, ["one", "two"])
    code, out = shell(["copy", "counts", "counts-copy", "--create", *named], environment)
    assert code == 0, out
    assert [row[4] for row in fake.records("counts-copy") if row[4]] == [b"one", b"two"]


@pytest.mark.parametrize("way", ["flag", "variable", "address"])
@pytest.mark.parametrize("tool", ["doctor", "explain", "broker-api-versions"])
def test_profiles_apply_to_diagnostic_commands(
    fake: FakeCluster,
    profiles: dict[str, str],
    tool: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [tool, "--json", *(["--profile", "here"] if way == "flag" else [])]
    ways = {"variable": {"ODRADEK_PROFILE": "here"}, "flag": {"ODRADEK_BOOTSTRAP_SERVER": "x:1"}}
    address = {"ODRADEK_BOOTSTRAP_SERVER": fake.bootstrap_servers}
    for name, value in (profiles | ways.get(way, address)).items():
        monkeypatch.setenv(name, value)
    code, out, err = run(*words)
    assert code == 0, out + err
    monkeypatch.setenv("ODRADEK_PROFILE", "none-such")
    code, _, err = run(*words)
    known = way == "flag"
    assert (code, "no profile 'none-such'" in err) == ((0, False) if known else (2, True)), err


@pytest.mark.parametrize(
    "line",
    [
        "produce --topic counts",
        "consume --topic counts",
        "copy counts counts-copy",
        "doctor",
        "explain",
        "broker-api-versions",
        "events tables --topic counts",
    ],
)
def test_a_typo_in_a_profile_is_reported_with_its_line(
    profiles: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", profiles["XDG_CONFIG_HOME"])
    code, _, out = run(*line.split(), "--profile", "typo")
    assert code == 2
    assert "config.toml, line 9: " in out or "config.toml, line 10: " in out
    assert "fetch.min.bites" in out or "request.timout.ms" in out


def test_copy_reads_source_and_destination_from_two_profiles(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCluster(1, cluster_id="another") as other, Producer(
        {"bootstrap.servers": fake.bootstrap_servers}
    ) as producer:  # fmt: skip
        producer.send("counts", value=b"one").result(60)
        place = tmp_path / "odradek" / "config.toml"
        place.parent.mkdir()
        place.write_text(
            f'[profile.a]\nbootstrap.servers = "{fake.bootstrap_servers}"\n'
            f'[profile.b]\nbootstrap.servers = "{other.bootstrap_servers}"\n'
        )
        words = ["copy", "counts", "counts", "--create", "--from-profile", "a", "--to-profile", "b"]
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        code, _, err = run(*words)
        assert code == 0, err
        assert [row[4] for row in other.records("counts") if row[4]] == [b"one"]


def test_copy_in_one_cluster_uses_the_sources_options_for_the_destination(
    fake: FakeCluster,
) -> None:
    words = ["copy", "counts", "counts-copy", "--create", "--bootstrap-server"]
    wrong = ["--from-command-property", "compression.type=none-such"]  # a producer's option
    code, _, err = run(*words, fake.bootstrap_servers, *wrong)
    assert (code, "compression.type" in err) == (2, True)
    over = ["--to-command-property", "compression.type=zstd"]
    code, _, err = run(*words, fake.bootstrap_servers, *wrong, *over)
    assert code == 0, err


def start_offsets(fake: FakeCluster, group: str) -> dict[int, int]:
    """Return a share group's start offsets by partition of flights."""
    with Admin({"bootstrap.servers": fake.bootstrap_servers}) as admin:
        found = admin.list_share_group_offsets(group)[group]
    return {at.partition: known.start_offset for at, known in found.items()}


def test_a_share_groups_offsets_are_reset_and_deleted(fake: FakeCluster) -> None:
    with Admin({"bootstrap.servers": fake.bootstrap_servers}) as admin:
        with Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer:
            producer.send("flights", value=b"one", partition=0).result(60)
        admin.alter_share_group_offsets("shares", {TopicPartition("flights", 0): 0})
        reset = ("groups", "reset-offsets", "shares", "--all-topics", "--to-latest")
        assert as_json(*reset, "--dry-run", *at(fake))["groups"]["shares"]["offsets"] == [
            {"topic": "flights", "partition": 0, "offset": 1}
        ]
        assert start_offsets(fake, "shares") == {0: 0}
        as_json(*reset, "--yes", *at(fake))
        assert start_offsets(fake, "shares") == {0: 1}
        delete = ("groups", "delete-offsets", "shares", "--topic")
        assert run(*delete, "flights:0", "--yes", *at(fake))[0] == 2
        as_json(*delete, "flights", "--yes", *at(fake))
        assert start_offsets(fake, "shares") == {}
        assert admin.list_group_offsets("shares") == {"shares": {}}


def test_offsets_that_could_not_be_reset_are_listed_as_failed_in_the_json_output(
    fake: FakeCluster,
) -> None:
    fake.refuse("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", 1)
    words = ("groups", "reset-offsets", "a", "b", "c", "d", "--topic", "counts", "--to-earliest")
    found = as_json(*words, "--yes", *at(fake), status=1)
    # Each broker rejects one commit, so its next commits and those of other brokers succeed.
    done = {group for group, made in found["groups"].items() if made["offsets"]}
    failed = {item.partition(" ")[0] for item in found["failed"]}
    assert done
    assert failed
    assert done | failed == {"a", "b", "c", "d"}
    assert not done & failed


def test_deleting_offsets_of_a_missing_group_fails(fake: FakeCluster) -> None:
    words = ("groups", "delete-offsets", "nobody", "--topic", "counts")
    for way in ("--dry-run", "--yes"):
        found = as_json(*words, way, *at(fake), status=1)
        assert list(found["failed"]) == ["nobody"]
