"""Tables of the Spark benchmark: medians, ratios, goals and failures."""

from __future__ import annotations

from typing import Any

from benchmarks import spark_goals, spark_table


def lane(title: str, *rates: float, error: str = "") -> dict[str, Any]:
    runs: list[dict[str, Any]] = [
        {"rows": 1000, "seconds": 1000 / r, "cpu_s": 2.0, "python_s": 0.5} for r in rates
    ]
    return {"title": title, "spark": "4.2.0", "runs": runs + [{"error": error}] * bool(error)}


STORE: dict[str, Any] = {
    "sitting": {
        "id": "2026-01-01",
        "commit": "abc",
        "machine": {"cpu": "x", "cores": 2, "python": "3.11", "load": 0.1},
        "kafka": "4.3.1",
        "packages": {"pyarrow": "26"},
        "records": 1000,
        "runs": 3,
    },
    "skipped": "no Java",
    "rows": {
        "read/noop": {
            "title": "all columns",
            "lanes": {
                "jvm": lane("JVM", 1e6, 2e6, 9e6),
                "jvm-tuned": lane("tuned", 4e6, error="out of\nmemory"),
                "odradek-4.2": lane("broken", error="no\nkernel"),
                "odradek": lane("Odradek", 5e6, 1e6, 6e6),
            },
        },
        "batches": {
            "title": "micro-batches",
            "lanes": {
                "jvm": {
                    "title": "JVM",
                    "spark": "4.2.0",
                    "runs": [{"warm_s": w, "cold_s": 2.0} for w in (0.3, 0.1, 0.2)],
                },
                "odradek": lane("Odradek", error="lost"),
            },
        },
    },
}


def test_the_table_shows_medians_ratios_and_goals() -> None:
    text = spark_table.markdown(STORE)
    assert "| Odradek | 4.2.0 | 5.00 | 1.00–6.00 | 2000.00 | 500.00 | 2.50 | 1.25 |" in text
    assert "| tuned | 4.2.0 | 4.00 |" in text  # the failed run isn't counted
    goals = [line for line in text.splitlines() if line.startswith("| all columns, ")]
    jvm = "| all columns, beside the JVM connector | 4.2.0 | ≥ 2 × (aim 2.5) |"
    tuned = "| all columns, beside it tuned | 4.2.0 | ≥ 1.4 × (aim 1.7) |"
    assert goals == [
        f"{jvm} failed | **missed** |",
        f"{jvm} 2.50 × | met, aim met |",
        f"{tuned} failed | **missed** |",
        f"{tuned} 1.25 × | **missed**, aim missed |",
    ]


def test_the_table_shows_the_reason_of_a_failed_run() -> None:
    text = spark_table.markdown(STORE)
    assert "| broken | 4.2.0 | failed | no kernel |" in text
    assert "Not measured: no Java" in text


def test_micro_batches_are_compared_with_the_jvm_and_with_an_empty_source() -> None:
    text = spark_table.markdown(STORE)
    assert "| JVM | 4.2.0 | 2.00 | 0.200 | 0.100–0.300 |" in text
    assert "| Odradek | 4.2.0 | failed |" in text
    row = {
        "lanes": {
            key: {"title": key, "spark": "4.2.0", "runs": [{"warm_s": warm, "cold_s": cold}]}
            for key, warm, cold in (
                ("jvm", 0.2, 2.0), ("empty-new", 0.15, 2.5), ("odradek", 0.29, 2.55)
            )
        }
    }  # fmt: skip
    found = {
        goal.text: (goal.verdict(reached), round(reached, 3))
        for goal, _, reached in spark_goals.judged({"rows": {"batches": row}})
        if reached is not None
    }
    assert found == {
        "cold micro-batch, beside the JVM connector": ("met", 1.275),
        "cold micro-batch, above an empty Python source": ("met", 0.05),
        "warm micro-batch, beside the JVM connector": ("met", 1.45),
        "warm micro-batch, above an empty Python source": ("**missed**", 0.14),
    }


def test_goals_for_scaling_and_planning_are_checked() -> None:
    def executors(seconds: float, cpu_s: float) -> dict[str, Any]:
        run = {"rows": 1000, "seconds": seconds, "cpu_s": cpu_s}
        return {"title": "", "spark": "4.3.0", "runs": [run]}

    planned = {"first_s": 2.0, "warm_s": 0.5, "alone_s": 0.2, "json_bytes": 2e6}
    store = {
        **STORE,
        "rows": {
            "scale": {
                "title": "executors",
                "lanes": {"executors-1": executors(10, 5), "executors-2": executors(8, 5.2)},
            },
            "planning": {
                "title": "planning",
                "lanes": {"10000": {"title": "10,000", "spark": "4.3.0", "runs": [planned]}},
            },
        },
    }
    text = spark_table.markdown(store)
    assert "where the broker allows it | 4.3.0 | ≥ 1.7 × | 1.25 × | not met, so the next" in text
    assert "| … else CPU of a row with two, beside one | 4.3.0 | ≤ 1.1 × | 1.04 × | met |" in text
    assert "| planning 10,000 partitions, warm | 4.3.0 | ≤ 1 s | 0.50 s | met |" in text
    assert "≤ 1e+06 bytes | 2,000,000 bytes | **missed** |" in text
    assert "| 10,000 | 2.00 | 0.50 | 0.20 | 2,000,000 |" in text


def test_the_tables_are_written_between_the_pages_marks() -> None:
    page = "before\n<!-- bench-spark summary -->\nold\n<!-- end -->\nbehind\n"
    text = spark_table.filled(page, STORE)
    assert text.startswith("before\n<!-- bench-spark summary -->\n\n|  | JVM 4.2.0 |")
    assert "| all columns into noop | 2.00 | 4.00 | – | 5.00 (2.5 ×, 1.2 ×) |" in text
    assert text.endswith("|\n\n<!-- end -->\nbehind\n")
    assert "old" not in text
    assert spark_table.filled(text, STORE) == text


def test_rows_that_were_measured_again_are_listed_below_the_table() -> None:
    again = {"rows": ["sink", "copy"], "id": "2026-01-02", "why": "workers are awake"}
    text = spark_table.markdown({**STORE, "again": [again]})
    assert "sink, copy: once more on 2026-01-02 UTC (workers are awake)." in text
