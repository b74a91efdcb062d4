"""Test `odradek groups, offsets, acls, users, quotas, transactions` with simulated brokers."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S
from typer.testing import CliRunner

import odradek
from odradek.cli import build
from odradek.cli.frame.commands import AdminRun
from odradek.testing import FakeCluster

NUMBERS = itertools.count()
FLIGHTS = [odradek.TopicPartition("flights", n) for n in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics={"flights": 2, "other": 1}) as running:
        with odradek.Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for n in range(10):
                producer.send("flights", value=b"x", partition=n % 2)
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[odradek.Admin]:
    with odradek.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


class Command:
    """Run a command line, with the cluster's address added."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.here = ("--bootstrap-server", cluster.bootstrap_servers)

    def __call__(self, *words: str, given: str | None = None) -> tuple[int, str, str]:
        done = CliRunner().invoke(build(words[0]), [*words, *self.here], input=given)
        return done.exit_code, done.stdout, done.stderr

    def json(self, *words: str, given: str | None = None) -> tuple[int, Any]:
        code, out, _ = self(*words, "--json", given=given)
        return code, json.loads(out)


@pytest.fixture
def odr(cluster: FakeCluster) -> Command:
    return Command(cluster)


@pytest.fixture
def idle(admin: odradek.Admin) -> Iterator[str]:
    """Return a group that has committed an offset and has no members."""
    admin.alter_group_offsets("idle", {FLIGHTS[0]: 2})
    yield "idle"
    if any(group.group_id == "idle" for group in admin.list_groups()):
        admin.delete_groups("idle")


@pytest.fixture
def busy(cluster: FakeCluster) -> Iterator[str]:
    """Return a new group with a member that reads."""
    group = f"busy-{next(NUMBERS)}"
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "group.instance.id": "worker-1",
        "auto.offset.reset": "earliest",
    }
    with odradek.Consumer(settings) as consumer:
        consumer.subscribe(["flights"])
        read = 0
        while read < 10:
            read += len(consumer.poll(5.0))
        consumer.commit()
        yield group


def test_a_group_with_a_member_is_described_but_not_reset_or_deleted(
    odr: Command, busy: str
) -> None:
    code, out, _ = odr("groups", "list", "--state", "stable")
    assert code == 0
    assert busy in [line.split()[0] for line in out.splitlines()[1:]]
    code, found = odr.json("groups", "describe", busy)
    assert code == 0
    group = found["groups"][busy]
    assert (group["state"], group["lag"], len(group["members"])) == ("Stable", 0, 1)
    assert [(p["partition"], p["offset"], p["end"]) for p in group["partitions"]] == [
        (0, 5, 5),
        (1, 5, 5),
    ]
    assert {p["member_id"] for p in group["partitions"]} == {group["members"][0]["member_id"]}
    code, out, _ = odr("groups", "members", busy)
    assert "worker-1" in out
    assert "flights:0,1" in out
    for words in (
        ("reset-offsets", busy, "--all-topics", "--to-earliest", "--yes"),
        ("reset-offsets", busy, "--all-topics", "--to-earliest", "--dry-run"),
        ("delete", busy, "--dry-run"),
        ("delete", busy, "--yes"),
    ):
        code, _, err = odr("groups", *words)
        assert code == 1
        assert "NonEmptyGroupError" in err
    code, found = odr.json("groups", "remove-members", busy, "--instance-id", "worker-1", "--yes")
    assert (code, found["members"]) == (0, ["worker-1"])


def test_the_lag_of_groups_is_printed_and_a_missing_group_reported(odr: Command, idle: str) -> None:
    code, out, err = odr("groups", "lag", idle, "gone")
    assert code == 1
    assert "GroupIdNotFoundError" in err
    assert [line.split() for line in out.splitlines()[1:2]] == [
        [idle, "flights", "0", "2", "5", "3"]
    ]
    code, found = odr.json("groups", "lag")
    assert (code, found["groups"][idle]["lag"]) == (0, 3)


def test_watching_lag_prints_a_line_per_interval(odr: Command, idle: str) -> None:
    watch = ("groups", "lag", idle, "--watch", "--interval", "0.1", "--count", "3")
    code, out, _ = odr(*watch)
    assert code == 0
    lines = out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        f"{idle} Empty lag 3",
        *[f"{idle} Empty lag 3, read 0.0/s, written 0.0/s"] * 2,
    ]
    _, out, _ = odr(*watch, "--json")
    assert [json.loads(line)["groups"][idle]["lag"] for line in out.splitlines()] == [3, 3, 3]


def test_watching_lag_ends_at_ctrl_c(odr: Command, idle: str) -> None:
    program = [str(Path(sys.executable).parent / "odradek")]
    words = ["groups", "lag", idle, "--watch", "--interval", "0.1", *odr.here]
    with subprocess.Popen(
        [*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert idle.encode() in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert b"Traceback" not in err


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process at the end of a block, because it may wait until its output is read."""
    try:
        yield
    finally:
        process.kill()


def test_a_watch_on_a_terminal_is_redrawn_until_ctrl_c(
    odr: Command, admin: odradek.Admin, idle: str
) -> None:
    program = str(Path(sys.executable).parent / "odradek")
    words = ["groups", "lag", idle, "--watch", "--interval", "0.1", *odr.here]
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(terminal, 10_000)

    with (
        subprocess.Popen([program, *words], stdin=end, stdout=end, stderr=end) as process,
        ended(process),
    ):
        os.close(end)
        until(b"press Ctrl-C to stop")
        until(b"CURRENT-OFFSET")  # the table of partitions follows the sums
        assert b"idle   Empty  0        3" in seen
        admin.alter_group_offsets(idle, {FLIGHTS[0]: 1})
        until(b"idle   Empty  0        4")
        process.send_signal(signal.SIGINT)
        until(b"\x1b[?25h")  # the cursor is shown again
        assert process.wait(30) == 130
    os.close(terminal)
    assert b"Traceback" not in seen


def test_a_number_after_watch_is_not_a_group_id(odr: Command, idle: str) -> None:
    for words in ((idle, "--watch", "1"), ("--watch", "1")):
        code, found = odr.json("groups", "lag", *words, "--count", "1")
        assert (code, found["error"]["error"]) == (2, "UsageError")
        assert "to set the interval, use --interval 1" in found["error"]["message"]


def test_members_are_removed(odr: Command, cluster: FakeCluster) -> None:
    busy = f"busy-{next(NUMBERS)}"
    remove = ("groups", "remove-members", busy)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": busy}
    static = {"group.instance.id": "worker-1", "session.timeout.ms": 300_000}
    # A static member that was closed stays in the group, and doesn't rejoin when it is removed.
    with odradek.Consumer({**settings, **static}) as worker:
        worker.subscribe(["flights"])
        while not worker.assignment():
            worker.poll(0.2)
    with odradek.Consumer(settings) as other:
        other.subscribe(["flights"])
        end = time.monotonic() + 30.0
        found: dict[str, Any] = {"members": []}
        while len(found["members"]) < 2 and time.monotonic() < end:
            other.poll(0.2)
            code, found = odr.json(*remove, "--dry-run")
            assert (code, found["dry_run"]) == (0, True)
        dynamic = next(name for name in found["members"] if name != "worker-1")
        assert sorted(found["members"]) == sorted(["worker-1", dynamic])
        code, out, err = odr(*remove)
        assert (code, out) == (2, "")
        assert f"remove 2 members from group {busy}, but there is no terminal to ask" in err
        named = (
            "--instance-id",
            "gone",
            "--instance-id",
            "worker-1",
            "--reason",
            "a test",
            "--yes",
        )
        code, found = odr.json(*remove, *named)
        assert (code, found["members"], list(found["failed"])) == (1, ["worker-1"], ["gone"])
        assert found["failed"]["gone"]["error"] == "UnknownMemberIdError"
        code, out, _ = odr(*remove, "--yes")
        assert (code, out) == (0, f"Removed member {dynamic} of group {busy}.\n")
    code, out, _ = odr(*remove, "--yes")
    assert (code, out) == (0, f"Group {busy} has no members.\n")
    code, found = odr.json("groups", "remove-members", "none-such", "--yes")
    assert (code, list(found["failed"] or [found["error"]["error"]])) == (
        1,
        ["GroupIdNotFoundError"],
    )


def test_members_of_a_share_group_can_not_be_removed(odr: Command, admin: odradek.Admin) -> None:
    admin.alter_share_group_offsets("shares", {FLIGHTS[0]: 1})
    code, found = odr.json("groups", "remove-members", "shares", "--yes")
    assert (code, found["error"]["error"]) == (2, "UsageError")
    assert "shares is a share group" in found["error"]["message"]
    admin.delete_groups("shares")


MODES = {
    ("--to-earliest",): {0: 0, 1: 0},
    ("--to-latest",): {0: 5, 1: 5},
    ("--to-current",): {0: 2, 1: 5},
    ("--to-offset", "3"): {0: 3, 1: 3},
    ("--to-offset", "99"): {0: 5, 1: 5},
    ("--to-datetime", "2001-01-01T00:00:00.000"): {0: 0, 1: 0},
    ("--by-duration", "P1D"): {0: 0, 1: 0},
    ("--by-duration", "PT0S"): {0: 5, 1: 5},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_dry_run_prints_the_offsets_of_each_reset_mode(
    odr: Command, idle: str, mode: tuple[str, ...]
) -> None:
    code, found = odr.json(
        "groups", "reset-offsets", idle, "--topic", "flights", *mode, "--dry-run"
    )
    assert code == 0
    offsets = {at["partition"]: at["offset"] for at in found["groups"][idle]["offsets"]}
    assert offsets == MODES[mode]


def test_a_reset_changes_offsets_only_after_a_confirmation(
    odr: Command, admin: odradek.Admin, idle: str, tmp_path: Path
) -> None:
    reset = ("groups", "reset-offsets", idle)
    scope = ("--topic", "flights:0")
    code, _, err = odr(*reset, *scope, "--shift-by", "1")
    assert code == 2
    assert "this would set 1 offset: idle flights-0 to 3" in err
    code, _, err = odr(*reset, "--topic", "flights", "--shift-by", "1", "--yes")
    assert code == 1  # flights-1 has no offset to shift, so no offset changes
    assert admin.list_group_offsets(idle)[idle][FLIGHTS[0]].offset == 2
    code, out, _ = odr(*reset, *scope, "--shift-by", "1", "--yes")
    assert (code, out.split()[-4:]) == (0, [idle, "flights", "0", "3"])
    assert admin.list_group_offsets(idle)[idle][FLIGHTS[0]].offset == 3
    code, out, _ = odr(*reset, "--all-topics", "--to-earliest", "--export")
    assert (code, out) == (0, "flights,0,0\n")
    file = tmp_path / "plan.csv"
    file.write_text("flights,0,1\nflights,1,77\n")
    code, out, err = odr(*reset, "--from-file", str(file), "--yes")
    assert code == 0
    assert "flights-1: 77 is above the latest offset" in err
    found = admin.list_group_offsets(idle)[idle]
    assert {at: offset.offset for at, offset in found.items()} == {FLIGHTS[0]: 1, FLIGHTS[1]: 5}
    code, _, err = odr(*reset, "--topic", "none", "--to-latest", "--yes")
    assert code == 1
    assert "UnknownTopicOrPartitionError" in err
    code, found_ = odr.json("groups", "delete-offsets", idle, "--topic", "flights:1", "--yes")
    assert (code, found_["deleted"]) == (0, ["flights-1"])
    assert list(admin.list_group_offsets(idle)[idle]) == FLIGHTS[:1]


def test_csv_plans_can_be_reimported_for_groups_with_unusual_names(
    odr: Command, admin: odradek.Admin, tmp_path: Path
) -> None:
    odd = ["two\nlines", 'a "word", and more', "plain"]
    for n, group in enumerate(odd):
        admin.alter_group_offsets(group, {FLIGHTS[0]: n})
    export = ("--all-topics", "--to-current", "--export")
    code, out, _ = odr("groups", "reset-offsets", *odd, *export)
    assert code == 0
    place = tmp_path / "plan.csv"
    place.write_text(out)
    code, found = odr.json("groups", "reset-offsets", *odd, "--from-file", str(place), "--dry-run")
    assert code == 0
    assert {g: plan["offsets"][0]["offset"] for g, plan in found["groups"].items()} == {
        group: n for n, group in enumerate(odd)
    }
    # A group id that CSV can't represent is reported, not changed.
    worst = "bell\x07\r\n"
    admin.alter_group_offsets(worst, {FLIGHTS[0]: 3})
    code, _, err = odr("groups", "reset-offsets", worst, "plain", *export)
    assert code == 2
    assert "contains control characters: export it alone" in err
    code, out, _ = odr("groups", "reset-offsets", worst, *export)
    assert (code, out) == (0, "flights,0,3\n")
    place.write_text(out)
    words = ("reset-offsets", worst, "--from-file", str(place), "--dry-run")
    code, found = odr.json("groups", *words)
    assert (code, found["groups"][worst]["offsets"][0]["offset"]) == (0, 3)
    admin.delete_groups([*odd, worst])


@pytest.mark.parametrize(
    "words",
    [
        ("--to-latest",),
        ("--all-topics",),
        ("--all-topics", "--topic", "flights", "--to-latest"),
        ("--all-topics", "--to-latest", "--to-earliest"),
        ("--all-topics", "--from-file", "nowhere.csv"),
        ("--from-file", "nowhere.csv"),
    ],
)
def test_invalid_arguments_of_reset_offsets_exit_with_2(
    odr: Command, words: tuple[str, ...]
) -> None:
    code, _, err = odr("groups", "reset-offsets", "g", *words, "--yes")
    assert code == 2
    assert err.startswith("odradek groups reset-offsets: ")


def test_groups_are_deleted(odr: Command, idle: str) -> None:
    code, found = odr.json("groups", "delete", idle, "gone", "--dry-run")
    assert (code, found["would_delete"], list(found["failed"])) == (1, [idle], ["gone"])
    code, found = odr.json("groups", "delete", idle, "gone", "--yes")
    assert (code, found["deleted"], list(found["failed"])) == (1, [idle], ["gone"])


def test_offsets_are_listed_by_time(odr: Command) -> None:
    code, found = odr.json("offsets", "list", "flights")
    assert (code, [one["offset"] for one in found["offsets"]]) == (0, [5, 5])
    for time_, offset in (("earliest", 0), ("2001-01-01T00:00:00", 0), ("2099-01-01", None)):
        code, found = odr.json("offsets", "list", "flights:1", "--time", time_)
        assert (code, [one["offset"] for one in found["offsets"]]) == (0, [offset])
    code, found = odr.json("offsets", "list", "flights:0", "--time", "max-timestamp")
    assert (code, found["offsets"][0]["timestamp_ms"] > 0) == (0, True)
    code, out, err = odr("offsets", "list", "flights:0", "none")
    assert (code, len(out.splitlines())) == (1, 2)
    assert "UnknownTopicOrPartitionError" in err
    assert odr("offsets", "list", "flights", "--time", "soon")[0] == 2


def test_acls_are_created_listed_and_deleted(odr: Command) -> None:
    whose = ("--allow-principal", "User:alice", "--topic", "flights")
    code, found = odr.json("acls", "create", *whose, "--operation", "read", "--dry-run")
    assert (code, len(found["would_create"])) == (0, 1)
    assert odr.json("acls", "list") == (0, {"acls": [], "failed": {}})
    code, found = odr.json("acls", "create", *whose, "--operation", "read")
    assert (code, len(found["created"]), found["existed"]) == (0, 1, [])
    code, out, _ = odr("acls", "create", *whose, "--producer")
    assert (code, out.count("Created: ")) == (0, 3)
    code, found = odr.json("acls", "create", *whose, "--producer")
    assert (code, found["created"], len(found["existed"])) == (0, [], 3)
    code, found = odr.json("acls", "list", "--principal", "User:bob")
    assert (code, found["acls"]) == (0, [])
    code, found = odr.json("acls", "delete", *whose, "--operation", "read", "--yes")
    assert (code, [one["operation"] for one in found["deleted"]]) == (0, ["READ"])
    assert odr("acls", "delete", "--topic", "flights")[0] == 2
    code, out, _ = odr("acls", "delete", "--topic", "flights", "--yes")
    assert (code, out.count("Deleted: ")) == (0, 3)


def test_acls_created_after_the_prompt_of_a_deletion_are_kept(
    odr: Command, admin: odradek.Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, later = (odradek.admin.AclBinding("TOPIC", "flights", f"User:{u}", "READ") for u in "ab")
    admin.create_acls([shown])

    def confirm(run: object, what: str) -> None:
        admin.create_acls([later])

    monkeypatch.setattr(AdminRun, "confirm", confirm)
    code, found = odr.json("acls", "delete", "--topic", "flights")
    assert (code, [one["principal"] for one in found["deleted"]]) == (0, ["User:a"])
    assert admin.describe_acls() == [later]
    admin.delete_acls([odradek.admin.AclBindingFilter()])


def test_users_are_created_altered_listed_and_deleted_without_printing_passwords(
    odr: Command, tmp_path: Path
) -> None:
    word = tmp_path / "word"
    word.write_text("planted-word\n")
    words = ("--password-file", str(word))
    said = [odr("users", "create", "alice", *words), odr("users", "create", "alice", *words)]
    assert [code for code, _, _ in said] == [0, 1]
    assert "DuplicateResourceError" in said[1][2]
    said.append(
        odr("users", "alter", "alice", "--mechanism", "scram-sha-256", "--password-file", "-",
            given="planted-word\n")
    )  # fmt: skip
    said.append(odr("users", "alter", "nobody", *words))
    said.append(odr("users", "alter", "alice", "--iterations", "5000", *words))
    assert [code for code, _, _ in said[2:]] == [0, 1, 0]
    assert not any("planted" in text for _, *texts in said for text in texts)
    code, found = odr.json("users", "list")
    infos = {one["mechanism"]: one["iterations"] for one in found["users"]["alice"]}
    assert (code, infos) == (0, {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000})
    assert odr("users", "delete", "alice")[0] == 2
    code, found = odr.json("users", "delete", "alice", "nobody", "--yes")
    assert (code, list(found["failed"])) == (1, ["nobody"])
    assert found["deleted"] == {"alice": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    assert odr("users", "describe", "alice")[0] == 1


def test_quotas_are_altered_listed_and_described(odr: Command) -> None:
    alter = ("quotas", "alter", "--user", "alice", "--client-defaults")
    assert odr(*alter, "--set", "producer_byte_rate=1e6", "--dry-run")[0] == 0
    assert odr.json("quotas", "list") == (0, {"quotas": [], "failed": {}})
    code, out, _ = odr(*alter, "--set", "producer_byte_rate=1e6", "--set", "request_percentage=50")
    assert code == 0
    assert out.startswith(
        "Set producer_byte_rate of user alice with any other client id to 1000000"
    )
    code, found = odr.json("quotas", "describe", "--user", "alice")
    entity = {"user": "alice", "client_id": "<default>", "ip": None}
    quotas = {"producer_byte_rate": 1e6, "request_percentage": 50.0}
    assert (code, found["quotas"]) == (0, [{"entity": entity, "quotas": quotas}])
    assert odr(*alter, "--unset", "producer_byte_rate", "--unset", "request_percentage")[0] == 0
    assert odr.json("quotas", "list") == (0, {"quotas": [], "failed": {}})


def test_transactions_are_listed_described_and_aborted(odr: Command, cluster: FakeCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx"}
    producer = odradek.Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("other", value=b"y").result(60)
    code, found = odr.json("transactions", "list", "--state", "ongoing")
    assert (code, [t["transactional_id"] for t in found["transactions"]]) == (0, ["tx"])
    code, found = odr.json("transactions", "describe", "tx", "gone")
    assert (code, list(found["failed"])) == (1, ["gone"])
    assert found["transactions"]["tx"]["partitions"] == [{"topic": "other", "partition": 0}]
    code, found = odr.json("transactions", "producers", "other")
    (state,) = found["partitions"][0]["producers"]
    assert (code, state["transaction_start_offset"]) == (0, 0)
    assert odr.json("transactions", "hanging", "--older-than", "0")[1]["hanging"] == []
    place = ("--topic", "other", "--partition", "0")
    code, _, err = odr("transactions", "abort", *place, "--start-offset", "7", "--yes")
    assert (code, "open transactions begin at 0" in err) == (1, True)
    code, out, _ = odr("transactions", "abort", *place, "--start-offset", "0", "--dry-run")
    assert (code, out.startswith("Would abort the transaction of producer ")) == (0, True)
    assert odr("transactions", "abort", "tx", *place)[0] == 2
    assert odr("transactions", "abort")[0] == 2
    code, found = odr.json("transactions", "abort", "tx", "gone", "--yes")
    assert (code, list(found["fenced"]), list(found["failed"])) == (1, ["tx"], ["gone"])
    with pytest.raises(odradek.KafkaError):
        producer.commit_transaction()
    producer.close()


def test_an_outage_does_not_end_a_watch(cluster: FakeCluster, odr: Command, idle: str) -> None:
    program = [str(Path(sys.executable).parent / "odradek")]
    words = ["groups", "lag", idle, "--watch", "--interval", "0.1", "--timeout", "0.5", *odr.here]
    with subprocess.Popen(
        [*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        for broker in cluster.broker_ids:
            cluster.pause(broker)
        assert b"TimeoutError" in process.stderr.readline()
        for broker in cluster.broker_ids:
            cluster.resume(broker)
        began = time.monotonic()
        while b"lag 3" not in process.stdout.readline():
            assert time.monotonic() - began < 30
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG_S)
    assert process.returncode == 130


def test_lag_is_served_until_sigterm(odr: Command, idle: str) -> None:
    program = [str(Path(sys.executable).parent / "odradek")]
    words = ["groups", "lag", "--prometheus", "127.0.0.1:0", "--include", "idle", *odr.here]
    with subprocess.Popen(
        [*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        address, path = process.stderr.readline().split("//")[1].split("/")
        end, found = time.monotonic() + 30.0, ""
        while "consumergroup_lag{" not in found and time.monotonic() < end:
            scraped = HTTPConnection(address, timeout=60)
            scraped.request("GET", f"/{path.strip()}")
            found = scraped.getresponse().read().decode()
            scraped.close()
        series = f'kafka_consumergroup_lag{{consumergroup="{idle}",topic="flights",partition="0"}}'
        assert f"{series} 3\n" in found
        code, told = odr.json("groups", "lag", "--prometheus", address)
        assert (code, told["error"]["error"]) == (1, "ConfigurationError")
        assert "Address already in use" in told["error"]["message"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, err) == (0, "")
    assert "idle" in out, "the last look"


def test_invalid_arguments_of_lag_exit_with_2(odr: Command, idle: str) -> None:
    for words, why in (
        ((idle, "--include", "x"), "group ids or --include"),
        (("--include", "("), "is not a valid regular expression"),
        (("--watch", "--prometheus", ":0"), "--watch or --prometheus"),
        (("--prometheus", "9308"), "expected HOST:PORT"),
    ):
        code, found = odr.json("groups", "lag", *words)
        assert (code, found["error"]["error"]) == (2, "UsageError")
        assert why in found["error"]["message"]
    code, found = odr.json("groups", "lag", "--include", "id.e")
    assert (code, list(found["groups"])) == (0, [idle])
