"""The scorecard's calculations: medians of values including "never", ranks, ties, lost rows."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.scorecard import table
from benchmarks.scorecard.rows import ROWS, Figure
from benchmarks.scorecard.run import Scorecard, summary


def runs(name: str, *values: float | None) -> list[dict[str, Any]]:
    return [{"figures": {name: value}, "error": None} for value in values]


@pytest.mark.parametrize(
    ("values", "median", "shown"),
    [
        ((3.0, 1.0, 2.0), 2.0, (1.0, 3.0)),
        ((3.0, None, 2.0), 3.0, (2.0, None)),
        ((None, None, 2.0), None, (2.0, None)),
        ((None, None, None), None, (None, None)),
    ],
)
def test_a_run_without_recovery_counts_as_worse_than_any_number_in_the_median(
    values: tuple[float | None, ...], median: float | None, shown: tuple[float | None, float | None]
) -> None:
    found = summary("x", runs("x", *values))
    assert found["median"] == median
    assert (found["min"], found["max"]) == shown


def cells(**medians: float | None) -> dict[str, dict[str, Any]]:
    return {client: {"x": {"median": value}} for client, value in medians.items()}


def test_results_within_the_absolute_or_the_relative_tolerance_of_the_best_are_tied() -> None:
    figure = Figure("x", "", "s", slack=0.25, share=0.25)
    found = table.rank(figure, cells(a=1.0, b=1.49, c=1.51, d=None))
    assert found == {"a", "b"}


def test_clients_that_reach_the_sufficient_value_are_tied() -> None:
    figure = Figure("x", "", "s", enough=5.25)
    assert table.rank(figure, cells(a=0.7, b=5.2, c=5.3)) == {"a", "b"}


def test_no_client_is_first_if_all_results_are_never() -> None:
    assert table.rank(Figure("x", "", "s"), cells(a=None, b=None)) == set()


def test_a_client_that_gave_up_is_not_ranked_for_few_connection_attempts() -> None:
    figure = Figure("x", "", "", share=0.2, needs="back")
    found = {
        "gone": {"x": {"median": 0}, "back": {"median": None}},
        "calm": {"x": {"median": 40}, "back": {"median": 0.5}},
        "wild": {"x": {"median": 800}, "back": {"median": 0.1}},
    }
    assert table.rank(figure, found) == {"calm"}


def good(**figures: float | None) -> list[dict[str, Any]]:
    return [{"figures": figures, "error": None, "notes": {}, "version": "9", "date": "2026-11-21"}]


REFUSED = good(foreign=0, asked=1)
FAILED: list[dict[str, Any]] = [{"figures": {}, "error": "it ended by itself", "notes": {}}]


def scorecard(**others: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a report with equal results in row A, a failure of Java in row G, and `others`."""
    quick, foreign = good(record=0.1, contact=0.1), good(foreign=600, asked=1)
    results = {"A_odradek": quick, "A_java": quick, "G_odradek": REFUSED, "G_java": foreign}
    card = Scorecard(["A", "G"], ["odradek", "java", "sarama"], runs=1, side_by_side=2)
    card.not_run["sarama"] = "no Go"
    for key, found in {**results, **others}.items():
        row, client = key.split("_")
        card.results[row][client] = found
    return card.report(1.0)


def test_a_row_that_odradek_does_not_win_is_named_below_the_table() -> None:
    report = scorecard(A_odradek=good(record=3.0, contact=2.9))
    text = table.markdown(report)
    assert "| 3.00 | 0.10 ● | not run |" in text
    assert "| refused ● | accepted 600 | not run |" in text
    assert "Not run (A, G): Sarama: no Go" in text
    assert "Odradek isn't first or tied first in: A (" in text
    assert table.lost(report) == [f"A ({ROWS['A'].title}): {ROWS['A'].figures[0].title}"]


def test_a_failed_run_is_listed_with_its_error_and_without_a_number() -> None:
    report = scorecard(
        A_odradek=good(record=0.1, contact=0.1) + FAILED,
        A_java=FAILED,
        G_java=good(foreign=0, asked=None),
    )
    text = table.markdown(report)
    assert "| 0.10 ● | not run | not run |" in text
    assert "| refused ● | never asked | not run |" in text
    assert "Odradek (it ended by itself)" in text
    assert "Not run (A): Java: it ended by itself" in text
    assert table.lost(report) == []


def test_updating_the_scorecard_keeps_results_that_were_not_measured_again() -> None:
    earlier = scorecard(A_odradek=good(record=3.0, contact=2.9))
    card = Scorecard(["A"], ["odradek"], runs=1, side_by_side=2)
    card.keep(earlier)
    card.results["A"]["odradek"] = good(record=0.1, contact=0.1)
    text = table.markdown(card.report(1.0))
    assert "| 0.10 ● | 0.10 ● | not run |" in text
    assert "| refused ● | accepted 600 | not run |" in text
    assert "no Go" in text


def test_the_readme_gets_the_scorecards_ranked_numbers_between_its_marks() -> None:
    report = scorecard()
    old = f"before\n{table.README_BEGIN}\nold\n{table.README_END}\nafter\n"
    new = table.into_readme(old, report)
    assert new.startswith(f"before\n{table.README_BEGIN}\n| ")
    assert new.endswith(f"{table.README_END}\nafter\n")
    assert "old" not in new
    assert "first contact" not in new
    assert table.into_readme(new, report) == new
    with pytest.raises(ValueError, match="no place"):
        table.into_readme("no marks", report)


def test_a_row_in_which_odradek_failed_counts_as_lost() -> None:
    report = scorecard(A_odradek=FAILED, G_java=REFUSED)
    assert table.lost(report) == [f"A ({ROWS['A'].title}): not run"]


def test_the_blocking_and_the_asyncio_client_of_odradek_are_judged_separately() -> None:
    card = Scorecard(["A"], ["odradek", "odradek-asyncio", "java"], runs=1, side_by_side=2)
    for client, seconds in (("odradek", 0.1), ("odradek-asyncio", 3.0), ("java", 0.2)):
        card.results["A"][client] = good(record=seconds, contact=seconds)
    report = card.report(1.0)
    assert "|  | Odradek 9 | Odradek, asyncio 9 | Java 9 |" in table.markdown(report)
    first, second = table.remarks(report)[-2:]
    assert first == "Odradek is first or tied first in every row above."
    assert second.startswith("Odradek in an event loop isn't first or tied first in: A (")
    assert table.lost(report) == []
    assert table.lost(report, "odradek-asyncio") == [
        f"A ({ROWS['A'].title}): {ROWS['A'].figures[0].title}"
    ]


def test_a_number_that_could_not_be_measured_does_not_count_as_lost() -> None:
    card = Scorecard(["H"], ["odradek"], runs=1, side_by_side=1)
    card.results["H"]["odradek"] = good(back=0.5, asked=2, dials_after=3)
    report = card.report(1.0)
    assert "not counted" in table.markdown(report)
    assert table.lost(report) == []


def test_every_row_of_the_scorecard_is_defined() -> None:
    keys = "A B C D3 D10 E3 E10 F G N H I J K L M"
    assert " ".join(ROWS) == keys
    for row in ROWS.values():
        assert any(figure.ranked for figure in row.figures), row.key
        names = {figure.name for figure in row.figures}
        assert {figure.needs for figure in row.figures} <= names | {None}
