"""Run the same queries with the JVM connector and with Odradek: same rows, same errors.

The JVM connector runs on Spark 4.2.0 in a separate process, one session for all cases; `make test`
compares with the kept results (`jvm_answers`). Odradek runs all reads at the source's interface,
and the sink and a part of the reads through Spark, twice: in the tests' session and on 4.2.0. If
that environment isn't available, tests that need it are skipped with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.spark_jvm import environment, queries
from pyspark.sql import SparkSession
from tests.interop.other_client import read_all
from tests.soak.spark_driver import spark_home
from tests.spark import jvm_answers, parity_cases
from tests.spark.class_archives import jars_of, java_options
from tests.spark.conftest import Topics, spark_options
from tests.spark.parity_cases import Case
from tests.spark.parity_reader import DirectReader
from tests.spark.parity_topics import SIDES, ParityTopics
from tests.volume import WHOLE

from odradek.testing import LocalCluster

OLDEST_SOURCE, OLDEST_TARGET = "oldest-source", "oldest-target"
pytestmark = pytest.mark.timeout(900)  # the first test on a machine installs Spark 4.2.0


class OlderSpark:
    """Process with Spark 4.2.0 and the JVM connector."""

    def __init__(self, folder: Path) -> None:
        found = environment.make()
        self._log = folder / "older-spark.log"
        home = spark_home(folder, python=False, installed=jars_of(found.python).parent)
        variables = {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": java_options(found.python)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [found.python, queries.__file__, str(folder), *found.jars],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder,
                env=found.variables() | variables,
            )  # fmt: skip

    def ask(self, cases: Sequence[dict[str, Any]]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(cases)).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Spark 4.2.0 died: {self._log.read_text()[-2000:]}"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


class Outcome:
    """Result of each case on each side."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, Any]] = {"jvm": {}, "reader": {}, "ours": {}, "older": {}}
        self.written: dict[str, list[tuple[Any, ...]]] = {}
        self.copied: list[int] = []
        """The values that another client read from the target topic of `oldest_program`."""
        self.no_older = ""
        """Why Spark 4.2.0 isn't available; empty if it is."""

    def needs_older(self) -> None:
        if self.no_older:
            pytest.skip(self.no_older)


def oldest_program(topics: Topics) -> dict[str, Any]:
    """Return the case of `oldest_program.py`."""
    topics.create(2, OLDEST_SOURCE)
    topics.create(2, OLDEST_TARGET)
    return {
        "name": "program",
        "kind": "program",
        "file": str(Path(__file__).with_name("oldest_program.py")),
        "options": spark_options(topics.cluster.client_config()),
        "source": OLDEST_SOURCE,
        "target": OLDEST_TARGET,
    }


@pytest.fixture(scope="module")
def outcome(
    spark: SparkSession,
    cluster: LocalCluster,
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("parity")
    found = Outcome()
    older = None
    try:
        older = OlderSpark(folder)
    except environment.UnavailableError as error:
        if jvm_answers.ASKED:
            pytest.skip(str(error))
        found.no_older = str(error)
    made = ParityTopics(topics)
    try:
        made.first_phase()
        if older is not None:
            assert older.answer()["spark"].startswith("4.2.")
        direct = DirectReader()
        address = cluster.bootstrap_servers
        for phase in (parity_cases.FIRST, parity_cases.AGAIN):
            if phase is parity_cases.AGAIN:
                made.second_phase()
            if older is not None:
                ask_older(older, topics, phase)
            ours = [case.for_side("ours", address) for case in phase if case.in_spark]
            found.of["ours"] |= json.loads(json.dumps(queries.run_all(spark, ours, folder)))
            for case in phase:
                if case.is_read:
                    found.of["reader"][case.name] = direct.run(case.for_side("reader", address))
            if older is not None:
                hear_older(older, found, phase)
            (folder / "outcome.json").write_text(json.dumps(found.of, indent=1))
        for side in SIDES:
            found.written[side] = made.written(side)
        if not jvm_answers.ASKED:
            found.of["jvm"], found.written["jvm"] = jvm_answers.kept(EVERY)
        elif jvm_answers.KEEPS:
            jvm_answers.keep(EVERY, found.of["jvm"], found.written["jvm"])
        copied = read_all(cluster.librdkafka_config(), OLDEST_TARGET, 2) if older else {}
        found.copied = sorted(int(r.key or b"-1") for records in copied.values() for r in records)
        yield found
    finally:
        if older is not None:
            older.close()
        made.close()


def ask_older(older: OlderSpark, topics: Topics, phase: Sequence[Case]) -> None:
    """Send Spark 4.2.0 all cases of a phase; it runs them while Odradek's source runs them."""
    address = topics.cluster.bootstrap_servers
    if jvm_answers.ASKED:
        older.ask([case.for_side("jvm", address) for case in phase])
    older.ask([case.for_side("older", address) for case in phase if case.on_oldest])
    if phase is parity_cases.FIRST:
        older.ask([oldest_program(topics)])


def hear_older(older: OlderSpark, found: Outcome, phase: Sequence[Case]) -> None:
    """Receive the results of `ask_older`."""
    if jvm_answers.ASKED:
        found.of["jvm"] |= older.answer()
    found.of["older"] |= older.answer()
    if phase is parity_cases.FIRST:
        found.of["program"] = older.answer()


def names(cases: Sequence[Case], *, oldest: bool = False) -> pytest.MarkDecorator:
    chosen = [
        pytest.param(case, id=case.name, marks=[pytest.mark.long] * (oldest and case.is_long))
        for case in cases
    ]
    return pytest.mark.parametrize("case", chosen)


_OURS = re.compile(r"^odradek\.[\w.]+: ", re.MULTILINE)
_SPARKS = re.compile(r"\s(?:SQLSTATE:|===|\tat )")


def said(error: str) -> str:
    """Return the message of our own error, because Spark's traces contain any word."""
    found = list(_OURS.finditer(error))
    if found:
        error = error[found[-1].end() :]
    elif "Traceback" in error or "===" in error:
        return ""
    return _SPARKS.split(error)[0].lower()


def compare(outcome: Outcome, case: Case, ours: dict[str, Any]) -> None:
    """Check that our result is the JVM connector's, or an error with the named option."""
    theirs = outcome.of["jvm"][case.name]
    if case.stricter:
        assert "error" not in theirs
        assert case.named.lower() in said(ours["error"])
    elif case.looser:
        assert "error" in theirs
        assert "error" not in ours
    elif "error" in theirs:
        assert "error" in ours, f"the JVM connector refuses: {theirs['error'][:600]}"
        assert case.named, f"expected no error of the JVM connector: {theirs['error'][:600]}"
        assert case.named.lower() in said(ours["error"])
    else:
        assert not case.named, "the JVM connector doesn't refuse that"
        refused = ours.get("error", "")
        if not jvm_answers.ASKED:
            ours = jvm_answers.comparable(ours)
        assert ours == theirs, refused


EVERY = (*parity_cases.FIRST, *parity_cases.AGAIN)


@names([case for case in EVERY if case.is_read])
def test_the_source_has_the_results_of_the_jvm_connector(outcome: Outcome, case: Case) -> None:
    compare(outcome, case, outcome.of["reader"][case.name])


@names([case for case in EVERY if case.in_spark])
def test_the_source_has_the_jvm_connectors_results_in_spark(outcome: Outcome, case: Case) -> None:
    compare(outcome, case, outcome.of["ours"][case.name])


@names([case for case in EVERY if case.on_oldest], oldest=True)
def test_the_source_has_the_jvm_connectors_results_in_the_oldest_spark(
    outcome: Outcome, case: Case
) -> None:
    outcome.needs_older()
    compare(outcome, case, outcome.of["older"][case.name])


def test_the_sink_writes_the_same_records_as_the_jvm_connector(outcome: Outcome) -> None:
    assert len(outcome.written["jvm"]) > 110
    assert outcome.written["ours"] == outcome.written["jvm"]
    if WHOLE and not outcome.no_older:
        assert outcome.written["older"] == outcome.written["jvm"]


@pytest.mark.long
def test_the_kept_results_of_the_jvm_connector_are_current(outcome: Outcome) -> None:
    """Check that the kept results are current, and that our sides agree."""
    outcome.needs_older()
    answers, written = jvm_answers.kept(EVERY)
    for case in EVERY:
        said_now = jvm_answers.comparable(outcome.of["jvm"][case.name])
        assert said_now == jvm_answers.comparable(answers[case.name]), case.name
        for side in ("reader", "ours"):
            if case.name in outcome.of[side]:
                compare(outcome, case, outcome.of[side][case.name])
    assert written == outcome.written["jvm"]


def test_compacted_and_aborted_records_are_really_missing(outcome: Outcome) -> None:
    """Check that records really are missing, so that the comparison isn't of ordinary topics."""
    jvm = outcome.of["jvm"]
    assert len(jvm["compacted"]["rows"]) < 60
    assert len(jvm["aborted records, too"]["rows"]) == 36
    assert len(jvm["committed records"]["rows"]) == 18
    assert jvm["without its head"]["rows"][0][4] == 30
    assert [len(jvm[name]["rows"]) for name in ("records of an open transaction",
                                               "up to an open transaction")] == [10, 5]  # fmt: skip


def test_a_pipeline_on_the_oldest_spark_loses_and_repeats_no_record(outcome: Outcome) -> None:
    """Check that a killed worker and a replayed batch lose and repeat no record."""
    outcome.needs_older()
    found = outcome.of["program"]["program"]
    assert "error" not in found, found["error"]
    assert found["spark"].startswith("4.2.")
    # Two tasks: this Spark mixes up the plans of filters, so filters are not pushed down
    # (docs/spark.md).
    assert (found["ids"], found["tasks"]) == (list(range(201, 300, 2)), 2)
    assert found["decoded"] == [n for n in range(300) if n % 7 == 3]
    assert found["failure"] != "", "nothing died"
    assert found["batches"] == [0]
    assert (found["again"], found["replay"]) == ("", "")
    assert found["ends"] == [0, 1, 2]
    assert outcome.copied == list(range(300))
