"""Test a pipeline's run with fake Spark queries: stops between batches, statuses, output."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.demo.pipeline import written
from odradek.cli.pipeline.checkpoint import Checkpoint
from odradek.cli.pipeline.display import JsonLines, PipelineView, lag_in_words
from odradek.cli.pipeline.document import read
from odradek.cli.pipeline.outages import ClusterOutage
from odradek.cli.pipeline.progress import Batch
from odradek.cli.pipeline.running import Queries, Running, Stop
from odradek.cli.pipeline.spec import Pipeline, parse
from odradek.common.secret import Secret

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"


def pipeline(**more: str) -> Pipeline:
    return parse(read(EXAMPLES / "by_day.yml", {"KAFKA": "localhost:9092", **more}))


class Query:
    """A fake streaming query with scripted steps; each read of its status is the next step."""

    def __init__(self, *steps: tuple[bool, str, int], error: str = "") -> None:
        self._steps = list(steps)
        self._error = error
        self.isActive = not error
        self.stopped_at: int | None = None
        self.looks = 0

    def _step(self) -> tuple[bool, str, int]:
        return self._steps[min(self.looks, len(self._steps) - 1)]

    @property
    def status(self) -> dict[str, Any]:
        self.looks += 1
        active, message, _ = self._step()
        return {"isTriggerActive": active, "message": message}

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802
        number = self._step()[2]
        return {
            "batchId": number, "timestamp": f"t{number}", "numInputRows": 7,
            "durationMs": {"triggerExecution": 100}, "sources": [],
        }  # fmt: skip

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        return [self.lastProgress]

    def exception(self) -> Exception | None:
        return ValueError(self._error) if self._error else None

    def stop(self) -> None:
        self.isActive, self.stopped_at = False, self.looks


BUSY, OFFSETS = "Processing new data", "Getting offsets from odradek"


def queries_of(queries: Mapping[str, Any], checkpoints: Mapping[str, str] | None = None) -> Queries:
    now = iter(range(100))
    return Queries(
        queries, JsonLines(), checkpoints, now=lambda: float(next(now)), sleep=lambda _: None
    )


def checkpoint(folder: Path, begun: int, committed: int) -> str:
    """Write a checkpoint folder as Spark does; return its path."""
    for name, newest in (("offsets", begun), ("commits", committed)):
        (folder / name).mkdir(parents=True)
        for number in range(newest + 1):
            (folder / name / str(number)).write_text('v1\n{}\n{"v":1,"o":{"t":{"0":7}}}\n')
    return str(folder)


@pytest.mark.parametrize(
    ("steps", "looks"),
    [
        ([(False, "Waiting for next trigger", 3)], 1),
        ([(True, BUSY, 3), (True, BUSY, 3), (False, "Waiting for next trigger", 3)], 2),
        # A query that requests offsets may start a batch next, so the stop waits until it idles.
        ([(True, BUSY, 3), (True, OFFSETS, 3), (True, "Waiting for data to arrive", 3)], 2),
        # If batches follow without a pause, the query is stopped after some seconds.
        (
            [
                *[(True, BUSY, 3), (True, OFFSETS, 3)] * 2,
                *[(True, BUSY, 4)] * 3,
                (True, OFFSETS, 5),
            ],
            7,
        ),
    ],
)
def test_a_flow_is_stopped_between_two_batches(
    steps: list[tuple[bool, str, int]], looks: int
) -> None:
    query = Query(*steps)
    queries = queries_of({"q": query})
    queries.wind_down(60.0, lambda: False)
    assert query.stopped_at == looks
    assert not queries.flows[0].cut


@pytest.mark.parametrize("batch", [None, 4])
def test_a_batch_that_began_during_the_stop_is_reported_from_the_checkpoint(
    tmp_path: Path, batch: int | None
) -> None:
    place = checkpoint(tmp_path, 3 if batch is None else batch, 3)
    queries = queries_of({"q": Query((False, "", 3))}, {"q": f"file://{place}"})
    queries.wind_down(60.0, lambda: False)
    [flow] = queries.flows
    assert flow.left is not None
    assert (flow.cut, flow.left.repeats) == (batch is not None, batch)


def test_a_batch_that_ended_before_a_forced_stop_is_not_interrupted(tmp_path: Path) -> None:
    queries = queries_of({"q": Query((True, BUSY, 3))}, {"q": checkpoint(tmp_path, 3, 3)})
    queries.wind_down(5.0, lambda: False)
    assert not queries.flows[0].cut


def test_flows_are_stopped_concurrently() -> None:
    """Stopping one query takes time, in which other queries would begin their next batches."""
    together = threading.Barrier(2, timeout=10)

    class Slow(Query):
        def stop(self) -> None:
            together.wait()
            super().stop()

    queries = queries_of({name: Slow((False, "", 3)) for name in "ab"})
    queries.wind_down(60.0, lambda: False)
    assert not queries.active


def test_a_flow_that_fails_during_the_stop_is_reported_as_failed(tmp_path: Path) -> None:
    class Failing(Query):
        @property
        def status(self) -> dict[str, Any]:
            self.isActive, self._error = False, "disk full"
            return super().status

    queries = queries_of({"q": Failing((True, BUSY, 3))}, {"q": checkpoint(tmp_path, 3, 2)})
    queries.wind_down(60.0, lambda: False)
    assert queries.failures() == {"q": "disk full"}


@pytest.mark.parametrize("hurried", [False, True])
def test_a_stop_that_takes_too_long_or_a_second_signal_interrupts_the_batch(
    *, hurried: bool
) -> None:
    query = Query((True, BUSY, 3))
    queries = queries_of({"q": query})
    queries.wind_down(5.0, lambda: hurried)
    assert queries.flows[0].cut
    assert query.looks == (0 if hurried else 4)


@pytest.mark.parametrize(
    ("query", "cut", "status", "event"),
    [
        (Query((False, "", 3)), False, 0, "stopped"),
        (Query((True, BUSY, 3)), True, 128 + signal.SIGTERM, "cut"),
        (Query((False, "", 3), error="disk full"), False, 1, "failed"),
    ],
)
def test_the_exit_status_and_the_last_line_show_how_the_run_ended(
    capsys: pytest.CaptureFixture[str], query: Query, *, cut: bool, status: int, event: str
) -> None:
    stop = Stop()
    stop.signals.append(signal.SIGTERM)
    running = Running(pipeline(), JsonLines(), stop, log=None, stop_timeout=1.0)
    queries = Queries({"q": query}, JsonLines())
    queries.flows[0].cut = cut
    queries.poll()
    assert running._ended(queries) == status
    batch, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (batch["event"], batch["rows"], batch["rows_per_second"]) == ("batch", 7, 70.0)
    assert (last["event"], last["rows"], last["batches"]) == (event, 7, 1)


@pytest.mark.parametrize(
    ("left", "cut", "words"),
    [
        (Checkpoint(3, 4), True, "q was stopped within batch 4, which will be repeated; "),
        (Checkpoint(3, 3), False, "q stopped: 0 rows read in 0 batches"),
        (
            Checkpoint(seen=False),
            False,
            "; a batch that had just begun will be repeated (the check",
        ),
        (Checkpoint(seen=False), True, "q was stopped within a batch, which will be repeated; "),
    ],
)
def test_a_batch_that_will_be_repeated_is_reported(
    capsys: pytest.CaptureFixture[str], left: Checkpoint, *, cut: bool, words: str
) -> None:
    stop = Stop()
    stop.signals.append(signal.SIGTERM)
    running = Running(pipeline(), JsonLines(), stop, log=None, stop_timeout=1.0)
    queries = Queries({"q": Query((False, "", 3))}, JsonLines())
    queries.flows[0].cut, queries.flows[0].left = cut, left
    assert running._ended(queries) == (128 + signal.SIGTERM if cut else 0)
    told = json.loads(capsys.readouterr().out)
    assert words in told["text"]
    assert told["repeats"] == left.repeats


def test_ctrl_c_exits_with_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    stop = Stop()
    stop.signals.append(signal.SIGINT)
    running = Running(pipeline(), JsonLines(), stop, log=None, stop_timeout=1.0)
    assert running._ended(Queries({"q": Query((False, "", 3))}, JsonLines())) == 130
    assert '"stopped"' in capsys.readouterr().out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_during_the_start_stops_the_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
) -> None:
    def asked(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)
        raise AssertionError("it went on")

    monkeypatch.setattr("odradek.cli.pipeline.running.ask_clusters", asked)
    before = signal.getsignal(number)
    with Stop() as stop:
        running = Running(
            pipeline(STORAGE=str(tmp_path)), JsonLines(), stop, log=None, stop_timeout=1.0
        )
        assert running.run() == status
    assert signal.getsignal(number) == before
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["text"]) == (
        "stopped",
        "orders-by-day was stopped before it had started",
    )


@pytest.mark.parametrize("again", [False, True])
def test_a_signal_during_the_start_of_the_jvm_takes_effect_afterwards(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    again: bool,
) -> None:
    """If PySpark is interrupted while it starts a JVM, the JVM keeps running."""
    steps: list[str] = []

    def session(*_: Any) -> str:
        signal.raise_signal(signal.SIGINT)
        steps.append("asked")
        if again:
            signal.raise_signal(signal.SIGINT)
        steps.append("started")
        return "spark"

    module = "odradek.cli.pipeline.running"
    monkeypatch.setattr(f"{module}.ask_clusters", lambda *_, **__: ())
    monkeypatch.setattr(f"{module}.session", session)
    monkeypatch.setattr(f"{module}.end_session", lambda spark: steps.append(f"{spark} ended"))
    with Stop() as stop:
        running = Running(
            pipeline(STORAGE=str(tmp_path)), JsonLines(), stop, log=None, stop_timeout=1.0
        )
        assert running.run() == 130
    assert steps == (["asked"] if again else ["asked", "started", "spark ended"])
    assert '"stopped"' in capsys.readouterr().out


def test_a_keyboard_interrupt_from_pysparks_handler_stops_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def asked(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odradek.cli.pipeline.running.ask_clusters", asked)
    place = pipeline(STORAGE=str(tmp_path))
    running = Running(place, JsonLines(), Stop(), log=None, stop_timeout=1.0)
    assert running.run() == 130
    assert json.loads(capsys.readouterr().out)["event"] == "stopped"


def test_a_flow_whose_python_worker_did_not_connect_is_retried_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "SparkException: Python worker failed to connect back."
    started: list[str] = []

    def start(name: str) -> Query:
        started.append(name)
        return Query((False, "", 3), error=words)

    queries = queries_of({"q": Query((False, "", 3), error=words), "r": Query((False, "", 3))})
    queries.start_again(start)
    queries.start_again(start)
    assert (started, list(queries.failures())) == (["q"], ["q"])
    [told] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["event"], told["flow"]) == ("starting", "q")
    assert "failed to connect back; retrying once" in told["text"]
    other = queries_of({"q": Query((False, "", 3), error="disk full")})
    other.start_again(start)
    assert started == ["q"]


def test_the_live_view_shows_batches_lag_and_outages(capsys: pytest.CaptureFixture[str]) -> None:
    outage = ClusterOutage("main", 100.0, "all known brokers fail")
    with PipelineView(pipeline()) as view:
        view.batch(Batch("files", 3, 5000, 2.0, {"t-0": 10, "t-1": 0}), 9000)
        view.outage("outage", outage)
        outage.over, outage.flowing = 104.0, 105.5
        view.outage("back", outage)
        view.outage("flowing", outage)
        drawn: Any = view._draw().renderables[0]
    shown = capsys.readouterr().out
    for words in (
        "files: batch 3, 5,000 rows in 2.00 s (2,500 rows/s), 9,000 read, lag 10 (t-0 10)",
        "no broker of cluster main answers: all known brokers fail",
        "cluster main is back after 4.0 s",
        "first rows 1.5 s after it was back",
    ):
        assert words in shown
    assert drawn.row_count == 1


def test_the_lag_in_words_names_the_partitions_with_the_largest_lag() -> None:
    assert lag_in_words({}) == "–"
    assert lag_in_words({"t-0": 0}) == "0"
    lag = {f"t-{n}": 10 * n for n in range(6)}
    assert lag_in_words(lag) == "150 (t-5 50, t-4 40, t-3 30, 2 more)"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yml")), ids=lambda p: p.stem)
def test_the_example_pipelines_are_valid(path: Path) -> None:
    found = parse(read(path, {"KAFKA": "localhost:9092"}))
    assert found.local_storage == EXAMPLES / "state" / path.stem


def test_the_pipeline_file_of_the_demo_contains_no_password(tmp_path: Path) -> None:
    variables = {"WAREHOUSE": "w", "EVENTS": "e"}
    config = {"bootstrap.servers": "a:1", "sasl.password": Secret("hunter2: and #more")}
    path = written(tmp_path / "pipeline.yml", config, variables)
    assert "hunter2" not in path.read_text()
    options = parse(read(path, variables)).sources["flights"].options
    assert options["kafka.sasl.password"].reveal() == "hunter2: and #more"


def test_a_flow_whose_query_was_stopped_by_other_code_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy, stopped = Query((False, "", 3)), Query((False, "", 3))
    stopped.stop()
    queries = Queries({"busy": busy, "stopped": stopped}, JsonLines())
    assert queries.vanished({"busy", "stopped"}) == {"stopped"}
    assert queries.vanished(set()) == set()  # a query with nothing more to read may end
    failed = Query((False, "", 3), error="oh")
    assert Queries({"failed": failed}, JsonLines()).vanished({"failed"}) == set()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").touch()
    unfinished = Queries({"stopped": stopped}, JsonLines(), {"stopped": str(tmp_path)})
    assert unfinished.vanished(set()) == {"stopped"}
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "4").touch()
    assert unfinished.vanished(set()) == set()
    running = Running(pipeline(), JsonLines(), Stop(), log=None, stop_timeout=1.0)
    running._vanished = {"stopped"}
    assert running._ended(queries) == 1
    assert "something else stopped its query" in capsys.readouterr().out
