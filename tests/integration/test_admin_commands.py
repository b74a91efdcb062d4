"""Test `odradek topics | partitions | configs | logdirs | cluster` with simulated brokers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.admin_commands import as_json, create_group_and_transactional_id, run, walk
from typer.testing import CliRunner

from odradek import Admin, Producer
from odradek.cli import build
from odradek.testing import FakeCluster

Here = tuple[str, ...]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(3, topics=["flights:2"]) as running:
        yield running


@pytest.fixture
def here(fake: FakeCluster) -> Here:
    return ("--bootstrap-server", fake.bootstrap_servers, "--timeout", "20")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_every_subcommand_works(fake: FakeCluster, here: Here) -> None:
    settings = {"bootstrap.servers": fake.bootstrap_servers}
    with Admin(settings) as admin:
        name = "every-verb"
        prepare = partial(create_group_and_transactional_id, admin, settings, name)
        walk(name, 1, "/simulated/d2", *here, prepare=prepare)


def test_topics_are_created_described_altered_emptied_and_deleted(
    fake: FakeCluster, here: Here
) -> None:
    assert as_json("topics", "create", "a", "--partitions", "2", "--dry-run", *here) == {
        "dry_run": True,
        "would_create": ["a"],
        "existed": [],
        "failed": {},
    }
    run("topics", "create", "a", "b", "--partitions", "2", *here)
    code, out, _ = run("topics", "alter", "a", "--set", "retention.ms=7", "--dry-run", *here)
    assert (code, out) == (0, "Would change topic a: set retention.ms=7.\n")
    assert as_json("topics", "describe", "a", *here)["topics"][0]["configs"] == {}
    found = as_json("topics", "alter", "a", "nope", "--set", "retention.ms=7", *here, status=1)
    assert (found["altered"], list(found["failed"])) == (["a"], ["nope"])
    found = as_json("topics", "describe", "a", "nope", *here, status=1)
    (topic,) = found["topics"]
    assert topic["configs"] == {"retention.ms": "7"}
    assert [p["replicas"] for p in topic["partitions"]] == [[1, 2, 3], [2, 3, 1]]
    assert found["failed"]["nope"]["code"] == 3
    code, out, err = run("topics", "describe", "a", "nope", *here)
    assert code == 1
    assert out.splitlines()[0].split() == ["topic", "id", "partitions", "replicas", "configs"]
    assert out.splitlines()[4].split() == ["a", "0", "1", "1,2,3", "1,2,3", "-"]
    assert err.startswith("odradek topics describe: UnknownTopicOrPartitionError: ")
    for flag, more in (("--dry-run", 0), ("--command-property=client.id=x", 1)):
        assert run("topics", "create-partitions", "a", "--partitions", "3", flag, *here)[0] == 0
        assert len(as_json("partitions", "list", "a", *here)["partitions"]) == 2 + more
    with Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer:
        for _ in range(5):
            producer.send("b", b"x", partition=1)
        producer.flush(20)
    words = ("topics", "delete-records", "b=end", "a:0=0")
    assert as_json(*words, "--dry-run", *here)["would_delete"][-1] == {
        "topic": "b",
        "partition": 1,
        "first": 0,
        "before": "the end",
    }
    assert run(*words, *here)[0] == 2  # without a terminal to confirm on
    found = as_json(*words, "--yes", *here)
    assert {(d["topic"], d["partition"], d["first_left"]) for d in found["deleted"]} == {
        *(("a", 0, 0), ("b", 0, 0), ("b", 1, 5)),
    }
    ends = as_json("partitions", "list", "b", "--offsets", *here)["partitions"][1]
    assert (ends["first_offset"], ends["next_offset"]) == (5, 5)
    assert run("topics", "delete", "a", "b", "--dry-run", *here)[1] == (
        "Would delete topic a.\nWould delete topic b.\n"
    )
    assert run("topics", "delete", "a", "b", "nope", "--if-exists", "--yes", *here) == (
        0,
        "Deleted topic a.\nDeleted topic b.\nTopic nope didn't exist.\n",
        "",
    )


def test_partitions_are_reassigned_and_leaders_elected(here: Here, tmp_path: Path) -> None:
    run("topics", "create", "moved", "--partitions", "2", *here)
    file = tmp_path / "moves.json"
    move = {"topic": "moved", "partition": 1, "replicas": [3, 1, 2], "log_dirs": ["any"] * 3}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    words = ("partitions", "reassign", "moved:0=2,3,1", "--reassignment-json-file", str(file))
    for flag in ("--dry-run", "--command-property=client.id=x"):
        before = as_json("partitions", "list", "moved", *here)["partitions"]
        assert [p["replicas"] for p in before] == [[1, 2, 3], [2, 3, 1]]
        found = as_json(*words, flag, *here)
        assert [(m["before"], m["to"]) for m in found["reassigned"]] == [
            ([1, 2, 3], [2, 3, 1]),
            ([2, 3, 1], [3, 1, 2]),
        ]
    until(lambda: run("partitions", "reassignments", *here)[1] == "No partition is being moved.\n")
    after = as_json("partitions", "list", "moved", *here)["partitions"]
    assert [p["replicas"] for p in after] == [[2, 3, 1], [3, 1, 2]]
    code, _, err = run("partitions", "reassign", "moved:0", "--cancel", *here)
    assert (code, "NoReassignmentInProgressError" in err) == (1, True)
    code, _, err = run("partitions", "elect-leaders", "--unclean", *here)
    assert (code, "may lack records" in err) == (2, True)


def test_preferred_leaders_are_elected_after_a_restart() -> None:
    with FakeCluster(2, topics=["flights:2"]) as cluster:
        here = ("--bootstrap-server", cluster.bootstrap_servers, "--timeout", "20")
        lacking = ("topics", "describe", "--under-replicated", *here)
        assert run(*lacking)[1] == "No matching partitions found.\n"
        cluster.stop(1)
        until(
            lambda: (
                run(*lacking)[1].splitlines()[1:]
                == [
                    "flights          0       2  1,2       2    1",
                    "flights          1       2  2,1       2    1",
                ]
            )
        )
        cluster.start(1)
        until(lambda: run(*lacking)[1] == "No matching partitions found.\n")
        words = ("partitions", "elect-leaders", *here)
        would = as_json(*words, "--dry-run")["would_elect"]
        assert would == [{"topic": "flights", "partition": 0}]
        assert run(*words, "flights:0", "flights:1") == (0, "Elected a leader of flights:0.\n", "")
        found = as_json("partitions", "list", *here)["partitions"]
        assert [p["leader"] for p in found] == [1, 2]
        assert run(*words)[1] == "No partition needed an election.\n"


def test_configs_of_topics_brokers_and_groups_are_altered_and_described(here: Here) -> None:
    assert run("configs", "describe", "topic", "flights", *here)[1] == "Nothing is set.\n"
    changed = as_json("configs", "alter", "topic", "flights", "--set", "retention.ms=9", *here)
    assert changed["altered"] == [{"type": "TOPIC", "name": "flights"}]
    line = run("configs", "describe", "topic", "flights", *here)[1].splitlines()[1]
    assert line.split() == ["flights", "retention.ms", "9", "DYNAMIC_TOPIC_CONFIG"]
    found = as_json("configs", "describe", "broker", "--option", "log.retention.ms", *here)
    assert [one["name"] for one in found["configs"]] == ["1", "2", "3"]
    assert [e["name"] for one in found["configs"] for e in one["configs"]] == [
        "log.retention.ms"
    ] * 3
    assert as_json("configs", "describe", "group", *here)["configs"] == []
    run("configs", "alter", "topic", "flights", "--delete", "retention.ms", *here)
    assert run("configs", "describe", "topic", "flights", *here)[1] == "Nothing is set.\n"


def test_logdirs_and_cluster_commands_print_the_clusters_state(
    fake: FakeCluster, here: Here
) -> None:
    dirs = as_json("logdirs", "describe", "--topic", "flights", *here)["log_dirs"]
    assert [(d["broker"], d["path"], len(d["replicas"])) for d in dirs[:2]] == [
        (1, "/simulated/d1", 2),
        (1, "/simulated/d2", 0),
    ]
    words = ("logdirs", "alter", "flights:0:1=/simulated/d2", "flights:0:9=/simulated/d2")
    assert as_json(*words[:3], "--dry-run", *here)["would_move"][0]["directory"] == "/simulated/d1"
    found = as_json(*words, "--timeout", "2", *here[:2], status=1)
    assert [m["broker"] for m in found["moved"]] == [1]
    assert list(found["failed"]) == ["flights-0 on broker 9"]
    told = as_json("cluster", "describe", *here)["cluster"]
    assert told["cluster_id"] == fake.cluster_id
    brokers = as_json("cluster", "brokers", *here)["brokers"]
    assert [(b["id"], b["host"]) for b in brokers] == [(n, "127.0.0.1") for n in (1, 2, 3)]
    assert sum(b["leads"] for b in brokers) >= 2
    assert as_json("cluster", "quorum", *here)["quorum"]["leader_id"] in (1, 2, 3)
    assert "group.version" in as_json("cluster", "features", *here)["features"]
    code, _, err = run("cluster", "unregister", "77", "--yes", *here)
    assert (code, "BrokerIdNotRegisteredError" in err) == (1, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topics alter t", "no change is given"),
        ("topics alter t --set a=1 --delete a", "a is changed twice"),
        ("topics alter t --append =1", "expected key=value"),
        ("topics delete-records t:0", "expected TOPIC[:PARTITION]=OFFSET"),
        ("topics delete-records t:0=-1", "the offset must be a number, or end"),
        ("topics delete-records t:x=1", "expected TOPIC:PARTITION, as in flights:0"),
        ("partitions reassign", "no partition is given"),
        ("partitions reassign t:0=1,x", "expected broker ids"),
        ("partitions reassign --reassignment-json-file /nowhere", "can't be read"),
        ("partitions reassign --reassignment-json-file /dev/null", "JSONDecodeError"),
        ("configs alter broker --set a=1", "or use --default"),
        ("configs describe topic --default", "--default needs the kind broker"),
        ("configs describe shelf", "shelf"),
        ("logdirs alter t:0=/d", "expected TOPIC:PARTITION:BROKER=DIRECTORY"),
        ("cluster set-features metadata.version=high --yes", "the level must be a number"),
        ("cluster unregister 4", "there is no terminal to ask"),
    ],
)
def test_invalid_command_lines_exit_with_2(line: str, said: str) -> None:
    code, out, err = run(*line.split(), "--bootstrap-server", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert said in err


def test_commands_work_after_brokers_move() -> None:
    """Move brokers: the addresses in the profile are outdated after each move."""
    with FakeCluster(2, topics=["flights"]) as cluster:
        here = ("--bootstrap-server", cluster.bootstrap_servers, "--timeout", "30")
        for number in cluster.broker_ids:
            assert as_json("topics", "describe", *here)["topics"][0]["name"] == "flights"
            cluster.move(number)
            ports = {b["id"]: b["port"] for b in as_json("cluster", "brokers", *here)["brokers"]}
            assert ports[number] == int(cluster.addresses[number].rpartition(":")[2])
        assert as_json("topics", "create", "more", *here)["created"]["more"]["partitions"] == 1


@pytest.mark.slow
def test_topics_delete_prompts_on_a_terminal_and_bash_completes_topic_names(
    fake: FakeCluster, here: Here
) -> None:
    """Run the program itself: a prompt on a terminal, and bash's completion."""
    command = str(Path(sys.executable).parent / "odradek")
    run("topics", "create", "asked", *here)
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [command, "topics", "delete", "asked", *here], stdin=end, stderr=end, stdout=end
    ) as process:
        os.close(end)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(terminal, 1000)
        os.write(terminal, b"n\n")
        assert process.wait(60) == 1
    os.close(terminal)
    assert b"This will delete 1 topic with all records: asked. Continue?" in said
    assert "asked" in as_json("topics", "list", *here)["topics"]
    line = f"odradek topics describe --bootstrap-server {fake.bootstrap_servers} fli"
    shell = {"_ODRADEK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    done = subprocess.run(
        [command], env=os.environ | shell, capture_output=True, text=True, check=True
    )
    assert done.stdout == "flights\n"


@pytest.mark.slow
def test_a_missing_topic_is_reported_without_a_prompt(here: Here) -> None:
    """Report a missing topic before the prompt; without a terminal `--yes` is required first."""
    command = [str(Path(sys.executable).parent / "odradek"), "topics", "delete", "flihgts"]
    terminal, end = pty.openpty()

    def answered(*more: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*command, *more, *here], stdin=end, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = answered()
    assert (code, out) == (1, "")
    assert err.count("(did you mean flights?)") == 1
    assert answered("--if-exists") == (0, "Topic flihgts didn't exist.\n", "")
    os.write(terminal, b"n\n")
    code, _, err = answered("flights")
    assert code == 1
    assert "This will delete 1 topic with all records: flights. Continue?" in err
    os.close(terminal)
    os.close(end)
    code, _, err = run("topics", "delete", "flihgts", *here)
    assert (code, "delete 1 topic with all records: flihgts, but there is no" in err) == (2, True)
    assert "flights" in as_json("topics", "list", *here)["topics"]


@pytest.mark.parametrize(
    ("shell", "said"),
    [("zsh", "_arguments '*: :((\"flights\"))'\n"), ("fish", "flights\n"), ("bash", "flights\n")],
)
def test_each_shell_completes_topic_names(fake: FakeCluster, shell: str, said: str) -> None:
    line = f"odradek topics alter --bootstrap-server {fake.bootstrap_servers} fli"
    asked = {
        "_ODRADEK_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": "5",
    }
    done = CliRunner().invoke(build("topics"), [], env=asked, prog_name="odradek")
    assert (done.exit_code, done.stdout) == (0, said)
