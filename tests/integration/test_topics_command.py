"""Test `odradek topics` with real brokers, and without any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli import build
from odradek.testing import LocalCluster
from odradek.testing.brokers.broker import free_port

Result = tuple[int, str, str]


def topics(*words: str) -> Result:
    done = CliRunner().invoke(build("topics"), ["topics", *words])
    return done.exit_code, done.stdout, done.stderr


def as_json(found: Result) -> tuple[int, dict[str, Any]]:
    return found[0], json.loads(found[1])


def test_topics_are_created_listed_and_deleted(cluster: LocalCluster, topic: str) -> None:
    here = ("--bootstrap-server", cluster.bootstrap_servers)
    one, two = f"{topic}-one", f"{topic}-two"
    options = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=1000")
    code, out, err = topics("create", one, two, *options, *here)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"Created topic {name}: 3 partitions, 1 replica each." for name in (one, two)
    ]
    assert topics("list", "--topic", f"{topic}-.*", *here) == (0, f"{one}\n{two}\n", "")
    code, out, err = topics("create", one, f"{topic}-three", *here)  # topic "three" is created
    assert code == 1
    assert err == (
        "odradek topics create: TopicAlreadyExistsError: "
        f"topic {one} already exists; --if-not-exists ignores that\n"
    )
    assert out.startswith(f"Created topic {topic}-three: ")
    code, found = as_json(topics("create", one, "--if-not-exists", "--json", *here))
    assert (code, found) == (0, {"created": {}, "existed": [one], "failed": {}})
    assert topics("delete", one, two, "--yes", *here) == (
        0,
        f"Deleted topic {one}.\nDeleted topic {two}.\n",
        "",
    )
    code, found = as_json(topics("delete", one, f"{topic}-three", "--json", "--yes", *here))
    assert code == 1
    assert found["deleted"] == [f"{topic}-three"]
    assert list(found["failed"]) == [one]
    code, found = as_json(topics("delete", one, "--if-exists", "--json", "--yes", *here))
    assert (code, found) == (0, {"deleted": [], "missing": [one], "failed": {}})


def test_a_brokers_error_is_reported_with_its_reason(cluster: LocalCluster, topic: str) -> None:
    here = ("--bootstrap-server", cluster.bootstrap_servers)
    code, out, err = topics("create", topic, "--replication-factor", "99", *here)
    assert (code, out) == (1, "")
    assert "InvalidReplicationFactorError" in err
    assert topic in err
    code, _, err = topics("create", "a/b", *here)
    assert code == 1
    assert "'a/b'" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "t", "--config", "=5"), "expected key=value"),
        (("list", "--topic", "["), "is not a valid regular expression"),
        (("list", "--command-config", "/nowhere.properties"), "can't be read"),
    ],
)
def test_invalid_command_lines_exit_with_2_and_a_reason(words: tuple[str, ...], said: str) -> None:
    code, _, err = topics(*words, "--bootstrap-server", "127.0.0.1:1")
    assert code == 2
    assert said in err


def test_without_a_cluster_the_command_ends_at_its_timeout() -> None:
    nowhere = ("--bootstrap-server", f"127.0.0.1:{free_port('127.0.0.1')}", "--timeout", "0.5")
    code, found = as_json(topics("create", "a", "b", "--json", *nowhere))
    assert code == 1
    assert {one["error"] for one in found["failed"].values()} == {"NoBrokerAvailableError"}
    assert list(found["failed"]) == ["a", "b"]
