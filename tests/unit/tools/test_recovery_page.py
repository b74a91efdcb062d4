"""The generator of docs/recovery.md: merging of results, and tables between marks."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {"runs": 2, "limit_s": 60.0, "partitions": "1 to brokers, drawn log-uniformly"}
PAGE = """# Recovery

Written by hand.
<!-- recovery: main -->
old
<!-- recovery: end -->
<!-- recovery: others -->
<!-- recovery: end -->
<!-- recovery: outage -->
<!-- recovery: end -->
Between.
<!-- recovery: fleet -->
<!-- recovery: end -->
At the end.
"""
FLEET = {
    "policy": "java",
    "clients": 1000,
    "brokers": 3,
    "first_second": {"tries_mean": 3.94, "tries_max": 4},
    "cap": {"dials_per_client_and_s": 1.3, "peak_over_mean": 5.37, "by_chance": 2.1},
    "return": {
        "dials_per_client": 1.72,
        "dials_in_fullest_10ms": 7,
        "back_p50_s": 0.489,
        "back_max_s": None,
    },
    "missed": [],
    "setting": "",
    "seconds": 12.5,
    "ms_per_client": 6.25,
}


TOOL = load_tool("recovery_page")


def cell(fault: str, strategy: str, runs: int, p99: float | None, **more: Any) -> dict[str, Any]:
    return {
        "brokers": 1000,
        "fault": fault,
        "strategy": strategy,
        "runs": runs,
        "never": 0 if p99 else runs,
        "contact": {"p50": 0.151, "p99": p99, "max": p99},
        "ack": {"p50": 0.156, "p99": p99, "max": p99},
        "dials": {"p50": 6, "p99": 7, "max": 8, "max_per_s": 5},
        "metadata_requests": {"p50": 4, "p99": 4, "max": 4},
        "missed": [],
        **more,
    }


def put(folder: Path, name: str, content: object, at: int) -> None:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(file, (at, at))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "recovery.md").write_text(PAGE)
    (tmp_path / "results").mkdir()
    return folder


def run(docs: Path) -> int:
    status = TOOL.main(["--docs", str(docs), "--results", str(docs.parent / "results")])
    assert isinstance(status, int)
    return status


def lines(docs: Path, start: str) -> list[str]:
    page = (docs / "recovery.md").read_text().splitlines()
    return [line for line in page if line.startswith(start)]


@pytest.mark.slow
def test_generated_tables_are_written_between_the_pages_marks(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = docs.parent / "results"
    several = [
        cell("refused", "odradek", 200, 0.294),
        cell("refused", "java", 20, None),
        cell("dns-moved", "odradek", 50, 2.5, missed=["contact p99 2.50 s, goal 2 s"]),
        cell("outage-refused", "odradek", 20, 1.147),
    ]
    put(results, "a.json", {"settings": SETTINGS, "results": several}, 1)
    put(results, "b.json", FLEET, 2)
    assert run(docs) == 0
    ours = "0.15 s / 0.29 s | 0.16 s / 0.29 s | 6 | 5 | 4 | 200"
    assert lines(docs, "| refused | 1,000 |") == [
        f"| refused | 1,000 | {ours} | 0.15 s / never | 20 | 6 | 5 | 20 |",
        "| refused | 1,000 | 6 | 8 | 0.15 s / 1.15 s | 20 |",
    ]
    assert lines(docs, "| refused | 300 |")[0] == (
        "| refused | 300 | not run | | | | | | not run | | | | |"
    )
    assert lines(docs, "| **dns-moved** | 1,000 | 0.15 s / 2.50 s |")
    assert lines(docs, "| java |") == [
        "| java | 1,000, 3 | 3.9 (4) | 1.30 | 5.37 (2.10) | 0.49 s, never | 1.72 | 7 |"
    ]
    for table in (x for x in (docs / "recovery.md").read_text().split("\n\n") if x[0] == "|"):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "old" not in (docs / "recovery.md").read_text()
    assert lines(docs, "Written by hand.")
    assert lines(docs, "At the end.")
    assert "never (in 60 s)" in (docs / "recovery.svg").read_text()
    assert "missed: dns-moved, 1000 brokers: contact p99 2.50 s" in capsys.readouterr().out
    # Without new results, docs/recovery.json is enough to generate the same page.
    names = ("recovery.json", "recovery.md", "recovery.svg")
    first = [(docs / name).read_text() for name in names]
    assert "ms_per_client" not in first[0]
    assert TOOL.main(["--docs", str(docs)]) == 0
    assert [(docs / name).read_text() for name in names] == first


def test_of_two_results_the_one_with_more_runs_is_used_or_else_the_later_one(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TOOL, "draw", lambda results, file: None)
    results = docs.parent / "results"
    for name, at, runs, p99 in (("z", 1, 100, 1.0), ("y", 2, 100, 2.0), ("x", 3, 99, 3.0)):
        put(
            results,
            f"{name}.json",
            {"settings": SETTINGS, **cell("silent", "odradek", runs, p99)},
            at,
        )
    run(docs)
    assert lines(docs, "| silent | 1,000 | 0.15 s / 2.00 s |")
    for file in results.iterdir():
        file.unlink()
    put(results, "a.json", {"settings": SETTINGS, **cell("silent", "odradek", 100, 4.0)}, 1)
    run(docs)
    assert lines(docs, "| silent | 1,000 | 0.15 s / 4.00 s |")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "isn't a whole result"),
        ("[]", "isn't a whole result"),
        ({"settings": SETTINGS, "results": [{"fault": "refused"}]}, "isn't a whole result"),
        ({"settings": SETTINGS, **cell("nothing", "odradek", 1, 1.0)}, "nothing"),
        ({"settings": {**SETTINGS, "limit_s": 9}, **cell("silent", "java", 1, 1.0)}, "--limit 60"),
        ({"settings": {**SETTINGS, "partitions": 3}, **cell("silent", "java", 1, 1.0)}, "drawn"),
    ],
)
def test_an_invalid_result_file_leaves_the_page_unchanged(
    docs: Path, capsys: pytest.CaptureFixture[str], content: object, why: str
) -> None:
    put(docs.parent / "results", "bad.json", content, 1)
    assert run(docs) == 1
    said = capsys.readouterr().err
    assert "bad.json" in said
    assert why in said
    assert (docs / "recovery.md").read_text() == PAGE
    assert not (docs / "recovery.json").exists()


def test_a_page_without_a_mark_is_rejected(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (docs / "recovery.md").write_text(PAGE.replace("<!-- recovery: outage -->", ""))
    assert run(docs) == 1
    assert "0 marks <!-- recovery: outage -->" in capsys.readouterr().err


def test_the_tables_on_the_page_agree_with_the_stored_results() -> None:
    results = TOOL.Results()
    results.add(ROOT / "docs/recovery.json")
    page = (ROOT / "docs/recovery.md").read_text()
    assert TOOL.fill(page, TOOL.tables(results)) == page
