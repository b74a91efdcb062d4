"""`odradek demo --simulated`: its events in virtual time, and that it detects faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from odradek.cli.demo.command import demo
from odradek.cli.demo.sample import FlightSample
from odradek.cli.demo.simulated import AWAY, CONSUMER, PRODUCER, Simulated, Story
from odradek.cli.demo.simulated_loop import SimulatedLoop
from odradek.record import BatchHeader
from odradek.simulation.logs.partition_log import PartitionLog, StoredBatch

ROWS = 300
MOVED = 6.0
"""Expected time of the move: half of 12 s; the clients' first metadata adds some milliseconds."""


MADE = pytest.mark.parametrize("made", [Simulated, SimulatedLoop])


def story(made: type[Simulated] = Simulated, seed: int = 1) -> Story:
    return made(FlightSample(ROWS), lambda *_: None, seconds=2 * MOVED, seed=seed).run()


USUAL: dict[str, Story] = {}
"""Cached results of the first seed, which several tests use."""


def usual(made: type[Simulated]) -> Story:
    """Return the result of the first seed, run once."""
    if made.__name__ not in USUAL:
        USUAL[made.__name__] = story(made)
    return USUAL[made.__name__]


def first(told: Story, words: str) -> float:
    return next(at for at, text in told.timeline if words in text)


@MADE
def test_the_cluster_moves_and_every_row_is_read_once(made: type[Simulated]) -> None:
    told = usual(made)
    result = told.result
    assert told.ok
    assert (result.rows_sent, result.rows_landed) == (ROWS, ROWS)
    assert (result.lost, result.duplicated, result.matches_reference) == (0, 0, True)
    assert result.rebootstraps == 2
    assert result.outage_s == pytest.approx(AWAY)
    assert result.producer_recovery_s is not None
    assert 0 < result.producer_recovery_s < 3
    assert (told.missing, told.doubled) == ([], [])
    assert 2 * MOVED <= told.virtual_s < 3 * MOVED


@MADE
def test_the_timeline_lists_the_events_in_order(made: type[Simulated]) -> None:
    told = usual(made)
    assert [at for at, _ in told.timeline] == sorted(at for at, _ in told.timeline)
    gone = first(told, "the whole cluster stops")
    assert gone == pytest.approx(MOVED, abs=0.1)
    back = first(told, "the cluster starts again, at 10.0.0.")
    assert back == pytest.approx(gone + AWAY)
    for client in (PRODUCER, CONSUMER):
        assert gone < first(told, f"{client} reconnects through bootstrap.servers: ") < gone + 2
        assert first(told, f"{client} found the cluster again through kafka.simulated:9092") > back
    assert any(
        at > back and f"{PRODUCER} gets acknowledgements" in text for at, text in told.timeline
    )
    assert any(at > back and f"{CONSUMER} reads records" in text for at, text in told.timeline)


@MADE
def test_the_counts_of_connection_attempts_are_plausible(made: type[Simulated]) -> None:
    told = usual(made)
    assert [one.client for one in told.dialling] == [PRODUCER, CONSUMER]
    for one in told.dialling:
        assert 5 < one.connection_attempts < 30
        assert one.refused == one.connection_attempts - 1  # the last attempt found the cluster
        assert 1 <= one.most_in_a_second <= 6
        assert one.metadata_requests >= 1


@MADE
def test_the_result_of_the_demo_depends_on_the_seed_only(made: type[Simulated]) -> None:
    one, again, other = usual(made), story(made), story(made, seed=4)
    assert one.timeline == again.timeline
    assert one.timeline != other.timeline
    assert other.ok


@MADE
def test_a_row_that_a_broker_loses_is_detected(
    made: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is acknowledged and lost before it is read."""
    commit = PartitionLog.commit
    lost: list[int] = []

    def losing(self: PartitionLog, batch: StoredBatch) -> None:
        if self.high_watermark < 50 or lost:
            commit(self, batch)
            return
        readers, self.on_commit = self.on_commit, {}
        commit(self, batch)
        lost.append(batch.header.count)
        place = self.batches.index(batch)
        del self.batches[place], self.base_offsets[place]
        self.on_commit = readers

    monkeypatch.setattr(PartitionLog, "commit", losing)
    told = story(made)
    assert lost
    assert not told.ok
    assert (told.result.lost, told.result.duplicated) == (lost[0], 0)
    assert not told.result.matches_reference
    assert len(told.missing) == lost[0]
    assert any(f"rows that never arrived: {told.missing[0]}" in line for line in told.closing())


def double_a_batch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Store one batch of a broker twice; append its number of rows to the list."""
    append = PartitionLog.append
    doubled: list[int] = []

    def twice(self: PartitionLog, data: bytes, header: BatchHeader, epoch: int) -> StoredBatch:
        if self.end_offset > 50 and not doubled:
            doubled.append(header.count)
            append(self, data, header, epoch)
        return append(self, data, header, epoch)

    monkeypatch.setattr(PartitionLog, "append", twice)
    return doubled


def run(folder: Path, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(demo)
    return CliRunner().invoke(app, ["--simulated", "--output", str(folder), *arguments])


SMALL = ("--rows", str(ROWS), "--seconds", "20", "--json")


def test_a_duplicate_row_makes_the_command_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = double_a_batch(monkeypatch)
    done = run(tmp_path, *SMALL)
    assert done.exit_code == 1, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["lost"], result["duplicated"]) == (0, doubled[0])
    assert result["matches_reference"] is False
    assert len(result["doubled_rows"]) == doubled[0]
    assert "rows that arrived more than once: " in done.stderr


class UnreadableError(Exception):
    """The error of a reader that fails."""


def test_an_error_of_a_reader_in_the_event_loop_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Simulated, records: object) -> None:
        raise UnreadableError

    monkeypatch.setattr(Simulated, "_take", broken)
    with pytest.raises(UnreadableError):
        story(SimulatedLoop)


def test_with_asyncio_the_clients_of_the_demo_run_in_one_event_loop(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL, "--asyncio")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["rows_landed"], result["lost"], result["duplicated"]) == (ROWS, 0, 0)
    assert f"{PRODUCER} and {CONSUMER} run in one event loop" in done.stderr


def test_the_command_prints_and_stores_its_result(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL, "--brokers", "5", "--seed", "9")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert (result["rows_sent"], result["lost"], result["duplicated"]) == (ROWS, 0, 0)
    assert (result["matches_reference"], result["seed"]) == (True, 9)
    assert {"at", "what"} == set(result["timeline"][0])
    assert "5 simulated brokers" in result["timeline"][0]["what"]
    assert {one["client"] for one in result["clients"]} == {PRODUCER, CONSUMER}
    assert "the whole cluster stops" in done.stderr
    assert "█" in done.stderr
    assert "connection attempts/s" in (tmp_path / "demo.svg").read_text()


def test_the_picture_in_the_readme_shows_todays_output(tmp_path: Path) -> None:
    """The times may differ by tenths between the supported versions of dependencies."""
    assert run(tmp_path).exit_code == 0
    shown, drawn = (
        re.findall(r"[\d,.]*\d", re.findall('class="title"[^>]*>([^<]*)', file.read_text())[0])
        for file in (Path(__file__).parents[2] / "docs/demo.svg", tmp_path / "demo.svg")
    )
    rows, outage, lost, doubled, *recovered = shown
    assert [rows, lost, doubled] == ["6,736", "0", "0"] == [drawn[n] for n in (0, 2, 3)]
    assert float(outage) == pytest.approx(float(drawn[1]), abs=0.5)
    assert [float(one) for one in recovered] == pytest.approx(
        [float(one) for one in drawn[4:]], abs=0.3
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--secure"], "--secure can't be given with --simulated"),
     (["--rows", "6737"], "the sample has fewer than 6737 rows")],
)  # fmt: skip
def test_invalid_arguments_of_the_demo_are_refused(
    tmp_path: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.demo.sample.find_spec", lambda _: None)
    done = run(tmp_path, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_command_needs_neither_spark_nor_arrow_nor_pandas(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys("
        "('pyarrow', 'pandas', 'numpy', 'pyspark')))\n"  # None makes the import fail
        f"sys.argv[1:] = ['demo', '--simulated', '--rows', '100', '--output', {str(tmp_path)!r}]\n"
        "from odradek.cli import main; main()"
    )
    # At the lowest priority, like all of the suite, the process may wait long for a processor.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "matches_reference  True" in done.stdout
