"""Each run of a schedule checks its history, can export it, and counts the covered cases."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.cli.simulate import app
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.history import CallKind, History, Operation
from odradek.simulation.checkers.history_check import check
from odradek.simulation.runs import coverage
from odradek.simulation.runs.explore import run_schedule
from odradek.simulation.runs.random_schedules import FAMILIES, Family, random_schedule
from odradek.testing import FakeCluster


def calls(family: Family, seeds: range) -> Counter[CallKind]:
    found: Counter[CallKind] = Counter()
    for seed in seeds:
        outcome = run_schedule(random_schedule(seed, family=family))
        assert outcome.ok, outcome.violation
        assert outcome.history is not None
        found.update(one.call for one in outcome.history.operations)
    return found


@pytest.mark.parametrize("family", ["plain", "transactions", "groups", "read-process-write"])
def test_histories_contain_the_expected_calls_of_each_family_of_schedules(family: Family) -> None:
    expected = {
        "plain": {CallKind.SEND, CallKind.POLL, CallKind.ASSIGN},
        "transactions": {CallKind.TXN},
        "groups": {
            CallKind.SEND,
            CallKind.POLL,
            CallKind.SUBSCRIBE,
            CallKind.ASSIGNED,
            CallKind.REVOKED,
        },
        "read-process-write": {CallKind.TXN, CallKind.POLL, CallKind.ASSIGNED},
    }
    assert expected[family] <= calls(family, range(6 if family == "plain" else 2)).keys()


def test_a_wrong_acknowledgement_is_detected_in_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acknowledged = Operation.acknowledged

    def further(self: Operation, offset: int | None = None, *more: Any) -> None:
        acknowledged(self, offset + 1 if offset is not None else None, *more)

    monkeypatch.setattr(Operation, "acknowledged", further)
    found = [run_schedule(random_schedule(seed, family="groups")).violation for seed in range(2)]
    assert any("wrong place" in str(text) for text in found)


def test_the_history_of_clients_of_a_kafka_simulation_can_be_checked() -> None:
    history, place = History(time.monotonic), TopicPartition("t", 0)
    with FakeCluster(topics=["t:1"]) as cluster:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for n in range(5):
                sent = history.sent("producer", place, str(n))
                sent.acknowledged(
                    producer.send("t", str(n).encode(), partition=0).result(10.0).offset
                )
        with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning([place])
            history.note(CallKind.ASSIGN, "consumer", 0, [place])
            seen = 0
            while seen < 5:
                poll = history.invoke(CallKind.POLL, "consumer")
                for record in consumer.poll(1.0):
                    poll.saw(place, record.offset, record.value)
                    seen += 1
                poll.ended()
    rows = [(n, str(n)) for n in range(5)]
    history.read("all", place, rows, complete=True)
    assert check(history) == []
    history.polls[0].seen[place].reverse()
    assert len(history.polls[0].seen[place]) < 2 or check(history) != []


def test_histories_are_written_as_lines_of_json_or_edn(tmp_path: Path) -> None:
    for name in ("history.jsonl", "history.edn"):
        path = tmp_path / name
        command = ["replay", "--seed", "1", "--family", "groups", "--history"]
        assert CliRunner().invoke(app, [*command, str(path)]).exit_code == 0
        lines = path.read_text().splitlines()
        if path.suffix == ".edn":
            assert lines[0].startswith("; keys: 0 t-")
            assert lines[1].startswith("{:index 0, :time 0, :type :invoke, :process 0, :f :send")
        else:
            assert check(History.of_lines(lines)) == []


def test_a_long_search_that_misses_a_kind_of_fault_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["explore", "--seeds", "0..1", "--family", "slow", "--json"]
    command += ["--directory", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    monkeypatch.setattr(coverage, "LONG", 2)
    assert CliRunner().invoke(app, command).exit_code == 0
    monkeypatch.setitem(coverage.EXPECTED, "slow", ("slow_api", "crash"))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["missing"] == ["crash"]


def test_every_family_lists_what_a_long_search_covers() -> None:
    assert coverage.EXPECTED.keys() == {None, *FAMILIES}
    assert all(coverage.EXPECTED.values())
    assert coverage.missing("groups", 999, {}, {}) == []
    assert "leave" in coverage.missing("groups", 1000, {"die": 1}, {})
