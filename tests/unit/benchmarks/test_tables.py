"""Tables of the benchmarks: medians, ratios, goals, and results that can't be compared."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import building, page, peers, picture, run, table, topics
from benchmarks.rows import ROWS, TUNED_BATCH, Goal


def measured(seconds: float, records: int = 1_000_000) -> dict[str, Any]:
    return table.derived(
        {
            "records": records,
            "seconds": seconds,
            "cpu": seconds / 2,
            "bytes": 116 * records,
            "peak_rss": 300_000_000,
            "rss_before": 60_000_000,
            "delivers": "things",
            "library": "some",
            "version": "1.0",
        }
    )


def store(**lanes: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    sitting = {
        "commit": "abc",
        "records": 1_000_000,
        "runs": 3,
        "kafka": "4.3.1",
        "skipped": {"sarama": "no go on PATH"},
        "machine": {"cpu": "a CPU", "cores": 2, "load": 0.1, "python": "3.11"},
    }
    return {
        "sittings": {s: {"id": f"{s} 12:00", **sitting} for s, _ in lanes.values()},
        "results": {
            f"{table.ALL_CORES}/consume/{lane.replace('_', '-')}": {"sitting": s, "runs": runs}
            for lane, (s, runs) in lanes.items()
        },
    }


def results(found: dict[str, Any]) -> table.Results:
    return table.Results(found, table.ALL_CORES)


def test_the_ratio_in_a_table_is_the_ratio_of_two_medians() -> None:
    ours = [measured(0.1), measured(0.2), measured(5.0)]
    theirs = [measured(2.0), measured(1.0), measured(4.0)]
    found = results(store(odradek_arrow=("one", ours), java=("one", theirs)))
    assert found.goal("consume", Goal("odradek-arrow", "java", 9)) == (10.0, True)
    assert found.goal("consume", Goal("odradek-arrow", "java", 11)) == (10.0, False)
    assert found.goal("consume", Goal("odradek-arrow", None, 0.1, "cpu_per_million", True)) == (
        0.1,
        True,
    )


def test_a_goal_without_a_successful_run_is_shown_without_a_number() -> None:
    found = store(odradek_arrow=("one", [{"error": "it broke"}]), java=("one", [measured(1.0)]))
    lines = [x for x in table.goals_table(results(found)).splitlines() if "| Java |" in x]
    assert lines == ["| consume 100 B: Odradek → Arrow | Java | ≥ 9× | | no figure |"]
    assert "failed: it broke" in table.markdown(found)


def test_results_of_another_benchmark_session_are_marked() -> None:
    same = store(odradek_arrow=("one", [measured(1.0)]), java=("one", [measured(1.0)]))
    other = store(odradek_arrow=("one", [measured(1.0)]), java=("two", [measured(1.0)]))
    assert table.OTHER_SITTING not in table.goals_table(results(same))
    assert f"Java {table.OTHER_SITTING}" in table.goals_table(results(other))


def test_clients_that_were_not_measured_are_listed_with_the_reason() -> None:
    found = store(odradek_arrow=("one", [measured(1.0)]))
    assert "skipped: sarama: no go on PATH" in table.markdown(found)


def test_memory_drift_is_measured_from_the_third_pass_on() -> None:
    levels = [50, 90, 100, 100, 130]
    assert table.derived({"rss_after_pass": levels})["rss_drift"] == 30


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.key)
def test_goals_refer_to_existing_clients_of_their_table(row: Any) -> None:
    lanes = {lane.key for lane in row.lanes}
    assert len(lanes) == len(row.lanes)
    for goal in row.goals:
        assert goal.lane in lanes
        assert goal.against is None or goal.against in lanes
    assert row.warm_up is None or row.warm_up in lanes


def test_batch_size_option_leaves_topics_with_their_own_batch_size_unchanged() -> None:
    assert {x.shape.batch_size for x in run.with_batches(ROWS["consume"], 1024).lanes} == {1024}
    sizes = {x.shape.batch_size for x in run.with_batches(ROWS["batches"], 1024).lanes}
    assert TUNED_BATCH not in sizes
    assert 16 << 10 in sizes


def test_only_benchmarks_of_tls_connect_to_the_encrypted_listener(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Cluster:
        security, inner_servers, broker_addresses = "SSL", "h:1", ("h:2",)
        authority = SimpleNamespace(certificate=tmp_path / "ca.pem")

    found = topics.Topics(Cluster(), tmp_path, 1000)  # type: ignore[arg-type]
    monkeypatch.setattr(found, "loaded", lambda shape: shape.topic)
    monkeypatch.setattr(peers, "command", lambda *_: building.Built(["driver"]))
    monkeypatch.setattr(run, "in_a_process", lambda words, _: {"words": words})
    bench = object.__new__(run.Bench)
    lanes = ROWS["consume-tls"].lanes
    started = {lane.key: bench.measure(found, lane)["words"] for lane in lanes}
    encrypted = ["driver", "--bootstrap", "h:2", "--ca", str(tmp_path / "ca.pem")]
    assert {key for key, words in started.items() if words[:5] != encrypted} == {"odradek-plain"}
    assert started["odradek-plain"][:3] == ["driver", "--bootstrap", "h:1"]
    assert {words[words.index("--topic") + 1] for words in started.values()} == {
        lane.shape.topic for lane in ROWS["consume"].lanes
    }


def test_stored_results_can_be_read_and_sessions_without_results_are_dropped(
    tmp_path: Path,
) -> None:
    found = store(odradek_arrow=("one", [measured(1.0)]))
    found["sittings"]["nothing left of it"] = {}
    run.write(tmp_path / "bench.json", found)
    assert run.read(tmp_path / "bench.json")["results"] == found["results"]
    assert list(run.read(tmp_path / "bench.json")["sittings"]) == ["one"]
    assert run.read(tmp_path / "none.json") == {"sittings": {}, "results": {}}


def test_only_the_text_between_marks_is_replaced() -> None:
    text = "a\n<!-- bench consume, all cores -->\nold\n<!-- end -->\nb\n"
    found = store(odradek_arrow=("one", [measured(1.0)]))
    once, missing = page.filled(text, found)
    assert missing == []
    assert once.startswith("a\n")
    assert once.endswith("<!-- end -->\nb\n")
    assert "old" not in once
    assert "Odradek → Arrow | 1.00" in once
    assert page.filled(once, found) == (once, [])
    _, missing = page.filled("<!-- bench soak, all cores -->\n<!-- end -->", found)
    assert missing == ["soak, all cores"]


def test_bars_of_the_picture_start_at_zero_and_are_proportional() -> None:
    found = store(odradek_arrow=("one", [measured(1.0)]), java=("one", [measured(4.0)]))
    text = picture.render(results(found), "a note")
    root = ElementTree.fromstring(text)  # noqa: S314 - our own text
    bars = [e for e in root.iter() if e.tag.endswith("rect")][1:]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.3)
    assert {bar.attrib["x"] for bar in bars} == {str(picture.LABELS)}
