"""Test `odradek copy`: the copied records, resuming after a kill, and rejected arguments.

Brokers are simulated, except where only real coordinators can prove that a kill causes no
duplicates.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

import pytest
import typer
from typer.testing import CliRunner

from odradek import (
    Admin,
    ConfigurationError,
    Consumer,
    KafkaTimeoutError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from odradek.cli.copy import copy, planning
from odradek.cli.copy.copying import FAILURES, CopyBooks, Copying
from odradek.cli.copy.planning import CopiedTopics, CopyPlan
from odradek.cli.copy.report import CopyReport, size
from odradek.cli.copy.writers import TransactionalWriter
from odradek.errors import AbortableTransactionError, FatalTransactionError
from odradek.testing import FakeCluster, LocalCluster

ODRADEK = Path(sys.executable).parent / "odradek"
PATIENCE = 60.0
COUNT = 200


@pytest.fixture(scope="module")
def fakes() -> Iterator[tuple[FakeCluster, FakeCluster]]:
    with FakeCluster(1) as one, FakeCluster(1, cluster_id="other") as other:
        yield one, other


def run(cluster: FakeCluster | LocalCluster, *words: str) -> tuple[int, str]:
    """Run the command in this process and return its exit status and output."""
    app = typer.Typer(add_completion=False)
    app.command()(copy)
    address = ["--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(app, [*words, *address])
    return done.exit_code, done.output


def told(cluster: FakeCluster | LocalCluster, *words: str) -> dict[str, Any]:
    status, output = run(cluster, *words, "--json")
    assert status == 0, output
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def fill(cluster: FakeCluster | LocalCluster, topic: str, first: int = 0) -> None:
    """Write records to two partitions, with every combination of missing fields."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for n in range(first, first + COUNT):
            producer.send(
                topic,
                b"%d" % n if n % 5 else None,
                b"key %d" % n if n % 3 else None,
                [("h", b"\xff"), ("h", None)] if n % 7 == 0 else None,
                partition=n % 2,
                timestamp_ms=10**12 + n,
            )


def rows(cluster: FakeCluster, topic: str, partition: int) -> list[tuple[object, ...]]:
    return [tuple(row)[1:] for row in cluster.records(topic, partition)]


def same(source: FakeCluster, topic: str, target: FakeCluster, copied: str) -> None:
    for partition in (0, 1):
        assert rows(target, copied, partition) == rows(source, topic, partition)


@pytest.fixture
def source(fakes: tuple[FakeCluster, FakeCluster], topic: str) -> str:
    fakes[0].create_topic(topic, 2)
    fill(fakes[0], topic)
    return topic


@pytest.mark.parametrize("way", [(), ("--at-least-once",)], ids=["exactly", "at least"])
def test_repeated_copies_within_a_cluster_copy_only_new_records(
    fakes: tuple[FakeCluster, FakeCluster], source: str, way: tuple[str, ...]
) -> None:
    one, _ = fakes
    target = f"{source}-copy"
    found = told(one, source, target, "--create", *way)
    assert (found["records"], found["positions"]) == (COUNT, {"0": COUNT // 2, "1": COUNT // 2})
    same(one, source, one, target)
    assert told(one, source, target, *way)["records"] == 0
    fill(one, source, COUNT)
    assert told(one, source, target, *way)["records"] == COUNT
    same(one, source, one, target)
    with Admin(
        {"bootstrap.servers": one.bootstrap_servers}
    ) as admin:  # so that the lag can be monitored
        offsets = admin.list_group_offsets(found["group"])[found["group"]]
    assert offsets[TopicPartition(source, 0)].offset == COUNT


def test_a_copy_to_another_cluster_starts_and_ends_at_the_given_offsets(
    fakes: tuple[FakeCluster, FakeCluster], source: str
) -> None:
    one, other = fakes
    way = (source, source, "--create", "--to-bootstrap-server", other.bootstrap_servers)
    part = told(one, *way, "--offset", "10", "--until", "-20")
    assert part["positions"] == {"0": COUNT // 2 - 20, "1": COUNT // 2 - 20}
    assert part["records"] == COUNT - 60
    assert told(one, *way)["records"] == 40
    for partition in (0, 1):
        assert rows(other, source, partition) == rows(one, source, partition)[10:]
    status, output = run(one, *way, "--offset", "@0")
    assert status == 0
    place = f"the progress is kept in group {re.escape(part['group'])}"
    assert re.search(rf"Copied 0 records \(0 B\) in \d+\.\d s, 0/s; {place}", output), output
    assert "fake-cluster" in part["group"]


def test_invalid_sources_and_destinations_are_rejected(
    fakes: tuple[FakeCluster, FakeCluster], source: str
) -> None:
    one, _ = fakes
    few, full = f"{source}-few", f"{source}-full"
    one.create_topic(few, 1)
    one.create_topic(full, 2)
    fill(one, full)
    for words, status, says in (
        ((source, source), 2, "can't be copied onto itself"),
        ((source, source, "--to-bootstrap-server", one.addresses[1]), 1, "onto itself"),
        ((source, f"{source}-none"), 1, f"--create creates it like {source}"),
        ((source, few), 1, f"{few} has 1 partition, but needs at least 2, as {source} has"),
        ((source, full), 1, "Use --restart to copy them again"),
        ((source, full, "--follow", "--until", "end"), 2, "--follow can't be given with --until"),
        ((source, full, "--offset", "stored"), 2, "--offset stored can't be given"),
        ((source, full, "--to-command-property", "nix=1"), 2, "unknown option 'nix'"),
        ((f"{source}-none", full), 1, f"{source}-none doesn't exist at 127"),
    ):
        assert (found := run(one, *words))[0] == status, found
        assert says in found[1]
    assert told(one, source, full, "--restart")["records"] == COUNT


def test_a_recreated_destination_is_rejected_without_restart(
    fakes: tuple[FakeCluster, FakeCluster], source: str
) -> None:
    one, _ = fakes
    target = f"{source}-copy"
    told(one, source, target, "--create")
    one.delete_topic(target)
    status, output = run(one, source, target, "--create")
    assert (status, "was recreated since this copy began" in output) == (1, True), output
    assert told(one, source, target, "--restart")["records"] == COUNT
    same(one, source, one, target)


@pytest.mark.parametrize("which", [0, 1])
def test_recreating_a_topic_during_a_copy_ends_the_copy(
    fakes: tuple[FakeCluster, FakeCluster], source: str, which: int
) -> None:
    """End the copy: the old topic's offsets must not be used for the new topic."""
    one, _ = fakes
    fill(one, source)
    target = f"{source}-copy-{which}"
    words = [source, target, "--bootstrap-server", one.bootstrap_servers, "--create", "--follow"]
    command = [str(ODRADEK), "copy", *words, "--json"]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        Admin({"bootstrap.servers": one.bootstrap_servers}) as admin,
    ):
        try:
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and target not in admin.list_topics():
                time.sleep(0.05)
            # A copy that has written a record knows both topics' ids.
            places = [TopicPartition(target, 0), TopicPartition(target, 1)]
            while time.monotonic() < until:
                ends = admin.list_offsets(dict.fromkeys(places, "LATEST"))
                if any(end.offset for end in ends.values()):
                    break
                time.sleep(0.05)
            made_again = (source, target)[which]
            admin.delete_topics([made_again])
            admin.create_topics([NewTopic(made_again, 2)])
            fill(one, source)
            out, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode not in (0, -signal.SIGKILL), said
    assert "was recreated since this copy began" in json.loads(out)["error"]["message"]


def test_records_deleted_before_they_were_copied_are_reported(
    fakes: tuple[FakeCluster, FakeCluster], source: str
) -> None:
    one, _ = fakes
    target = f"{source}-copy"
    told(one, source, target, "--create", "--until", "10")
    with Admin({"bootstrap.servers": one.bootstrap_servers}) as admin:
        admin.delete_records({TopicPartition(source, 0): 15})
    status, output = run(one, source, target)
    assert status == 0
    assert f"5 offsets of {source}-0 were deleted before being copied" in output
    assert len(rows(one, target, 0)) == COUNT // 2 - 5
    assert len(rows(one, target, 1)) == COUNT // 2


def test_another_copy_fences_the_first(fakes: tuple[FakeCluster, FakeCluster], source: str) -> None:
    """Abort the first copy's transaction and fence its producer."""
    one, _ = fakes
    target = f"{source}-copy"
    name = told(one, source, target, "--create", "--until", "10")["group"]
    settings = {"bootstrap.servers": one.bootstrap_servers}
    with Producer(settings, transactional_id=name) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(target, b"doubled", partition=0).result(PATIENCE)
        assert told(one, source, target)["records"] == COUNT - 20
        with pytest.raises(FatalTransactionError):
            first.commit_transaction(PATIENCE)
    committed = {**settings, "isolation.level": "read_committed"}
    with Consumer(committed) as reader:
        place = TopicPartition(target, 0)
        reader.assign({place: 0}, until=ends(one.bootstrap_servers, place))
        values = [record.value for record in reader.records(timeout=PATIENCE)]
    assert values == [row[3] for row in rows(one, source, 0)]


class FailingWriter:
    """Writer whose first `failures` commits fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.failing: Callable[[], object] = lambda: None
        """Called when a commit fails."""
        self.open: list[bytes] = []
        self.kept: list[bytes] = []

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def progress(self, *, restart: bool) -> dict[int, int]:
        return {}

    def write(self, batch: Any) -> None:
        self.open += batch.column("key").to_pylist()

    def commit(self, positions: Any) -> None:
        if self.failures:
            self.failures -= 1
            self.failing()
            raise AbortableTransactionError("this one failed")
        self.kept, self.open = self.kept + self.open, []

    def abort(self) -> None:
        self.open = []


@pytest.mark.parametrize("failures", [2, FAILURES])
def test_a_failed_step_of_a_copy_is_retried(
    fakes: tuple[FakeCluster, FakeCluster], source: str, failures: int
) -> None:
    one, _ = fakes
    writer = FailingWriter(failures)
    books = CopyBooks({0: 0, 1: 0})
    plan = CopyPlan(source, "x", 2, "g", "", one_cluster=True)
    with Consumer({"bootstrap.servers": one.bootstrap_servers}) as consumer:
        copying = Copying(consumer, writer, plan, books, time.monotonic)
        ends = {0: COUNT // 2, 1: COUNT // 2}
        if failures == FAILURES:
            with pytest.raises(AbortableTransactionError):
                copying.run(ends)
            assert (books.records, books.positions) == (0, {0: 0, 1: 0})
            return
        copying.run(ends)
    assert (books.records, books.given_up, books.positions) == (COUNT, failures, ends)
    assert len(writer.kept) == COUNT


@pytest.mark.parametrize("which", [0, 1])
def test_deleting_a_topic_during_a_copy_ends_the_copy(
    fakes: tuple[FakeCluster, FakeCluster], source: str, which: int
) -> None:
    """The copy ends after the first failed step, not after five times delivery.timeout.ms."""
    one, _ = fakes
    target = f"{source}-copy"
    told(one, source, target, "--create", "--until", "0")
    writer, books = FailingWriter(FAILURES), CopyBooks({0: 0, 1: 0})
    settings = {"bootstrap.servers": one.bootstrap_servers}
    with Consumer(settings) as consumer, Admin(settings) as admin:
        ids = [admin.describe_topics(t)[t].topic_id for t in (source, target)]
        plan = CopyPlan(source, target, 2, "g", " ".join(map(str, ids)), one_cluster=True)
        gone = (source, target)[which]

        def delete() -> None:
            if writer.failures == FAILURES - 1:
                one.delete_topic(gone)

        writer.failing = delete
        watch = CopiedTopics(admin, admin, plan)
        copying = Copying(consumer, writer, plan, books, time.monotonic, watch)
        with pytest.raises(ConfigurationError, match=f"topic {gone} was deleted during the copy"):
            copying.run({0: COUNT // 2, 1: COUNT // 2})
    assert (writer.failures, books.given_up) == (FAILURES - 1, 0)


def test_an_outage_while_checking_for_deleted_topics_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away:
        looks = 0

        def describe_topics(self, *_: object) -> Any:
            self.looks += 1
            raise (
                UnknownTopicOrPartitionError("t") if self.looks == 1 else KafkaTimeoutError("late")
            )

    monkeypatch.setattr(planning, "PAUSE", 0.0)
    admin: Any = Away()
    CopiedTopics(admin, admin, CopyPlan("t", "u", 1, "g", "", one_cluster=True)).make_sure()
    assert admin.looks == planning.ABSENT


def test_a_fenced_copy_names_the_other_copy(
    fakes: tuple[FakeCluster, FakeCluster], source: str
) -> None:
    one, _ = fakes
    target = f"{source}-copy"
    name = told(one, source, target, "--create", "--until", "0")["group"]
    plan = CopyPlan(source, target, 2, name, "", one_cluster=True)
    settings = {"bootstrap.servers": one.bootstrap_servers, "transactional.id": name}
    with Producer(settings) as first, Producer(settings) as second:
        writer = TransactionalWriter(first, plan)
        writer.progress(restart=True)
        writer.commit({0: 1})
        second.init_transactions()
        says = f"another copy with the same name \\({name}\\) is running"
        with pytest.raises(ProducerFencedError, match=says), writer.alone():
            writer.commit({0: 2})


def test_ctrl_c_during_an_outage_reports_how_long_closing_may_take(topic: str) -> None:
    with FakeCluster(1, topics=[f"{topic}:2", f"{topic}-copy:2"]) as one:
        fill(one, topic)
        words = [topic, f"{topic}-copy", "--bootstrap-server", one.bootstrap_servers, "--follow"]
        # The copy ends by itself after its timeout for closing, so that timeout must be longer than
        # the test's own.
        patient = f"from odradek.cli import copy; copy.CLOSING = {5 * PATIENCE}"
        run_it = "from odradek.__main__ import main; main()"
        command = [sys.executable, "-c", f"{patient}; {run_it}", "copy", *words, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and not one.records(f"{topic}-copy"):
                time.sleep(0.05)
            # So that a transaction is open when Ctrl-C comes.
            one.delay("EndTxn", PATIENCE)
            ended = one.requests()["EndTxn"]
            fill(one, topic)
            while time.monotonic() < until and one.requests()["EndTxn"] == ended:
                time.sleep(0.05)
            one.pause(1)
            process.send_signal(signal.SIGINT)
            stderr = cast("IO[bytes]", process.stderr)
            said = next(line for line in stderr if b"ending" in line).decode()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
        one.resume(1)
    assert "aborting the open transaction, for at most 300 s; Ctrl-C ends at once" in said
    assert process.returncode == 130
    assert json.loads(out)["group"].endswith(f".{topic}-copy")


def test_the_progress_line_shows_rate_lag_time_left_and_problem() -> None:
    books = CopyBooks({0: 40, 1: 100}, records=0)
    report = CopyReport(books, {0: 100, 1: 100}, lambda: "no broker\x1b answers", quiet=True)
    began = report._began
    books.records, books.bytes = 30, 2_500_000
    line = report.line(began + 2.0)
    assert line == r"30 records, 2.5 MB, 15/s; lag 60; 4 s left; no broker\x1b answers"
    assert CopyReport(books, None, lambda: None, quiet=True).left() is None
    assert [size(n) for n in (1, 1000, 10**9)] == ["1 B", "1.0 kB", "1.0 GB"]


@pytest.mark.long  # shorter tests: test_another_copy_fences_the_first
def test_a_copy_that_is_killed_loses_and_duplicates_no_record(
    cluster: LocalCluster, topic: str
) -> None:
    """Kill the copy within a step, while records keep arriving."""
    target = f"{topic}-copy"
    cluster.create_topic(topic, 2)
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    words = [topic, target, "--bootstrap-server", cluster.bootstrap_servers, "--create"]
    sent = 0
    committed = {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with (
        Producer(settings, linger_ms=0) as producer,
        Consumer(committed) as reader,
        subprocess.Popen([ODRADEK, "copy", *words, "--follow"], stderr=subprocess.PIPE) as process,
    ):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for _ in range(20):
                producer.send(topic, b"%d" % sent, partition=sent % 2)
                sent += 1
            time.sleep(0.02)
            if sent % 400 == 0:
                producer.flush(PATIENCE)  # a busy machine sends more slowly than this loop runs
                if _has_records(reader, target):
                    break
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert 0 < told(cluster, topic, target, "--until", "0")["positions"]["0"] < sent // 2
    status, output = run(cluster, topic, target)
    assert status == 0, output
    with Consumer(committed) as reader:
        both = [TopicPartition(target, p) for p in (0, 1)]
        reader.assign(dict.fromkeys(both, 0), until=ends(cluster.bootstrap_servers, *both))
        values: dict[int, list[int]] = {0: [], 1: []}
        for record in reader.records(timeout=PATIENCE):
            values[record.partition].append(int(record.value or b""))
    assert values == {p: list(range(p, sent, 2)) for p in (0, 1)}


def ends(servers: str, *partitions: TopicPartition) -> dict[TopicPartition, int]:
    """Return the end offsets, which may be too low: transaction markers may still be missing."""
    with Consumer({"bootstrap.servers": servers}) as reader:
        return reader.end_offsets(list(partitions))


def _has_records(reader: Consumer, topic: str) -> bool:
    """Return whether each partition has committed records; a first step may read only one."""
    if topic not in reader.list_topics():
        return False
    return all(reader.end_offsets([TopicPartition(topic, p) for p in (0, 1)]).values())
