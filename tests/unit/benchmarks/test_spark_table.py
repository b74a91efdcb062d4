"""Tables of the Spark benchmark: medians, ratios, goals, and what failed."""

from __future__ import annotations

from typing import Any

from benchmarks import spark_table


def lane(title: str, *rates: float, error: str = "") -> dict[str, Any]:
    runs: list[dict[str, Any]] = [{"rows": 1000, "seconds": 1000 / r, "cpu_s": 2.0} for r in rates]
    return {"title": title, "spark": "4.2.0", "runs": runs + [{"error": error}] * bool(error)}


STORE: dict[str, Any] = {
    "sitting": {
        "id": "2026-01-01",
        "commit": "abc",
        "machine": {"cpu": "x", "cores": 2, "python": "3.11"},
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


def test_medians_ratios_and_goals() -> None:
    text = spark_table.markdown(STORE)
    assert "| Odradek | 4.2.0 | 5.00 | 1.00–6.00 | 2000.00 | 2.50 | 1.25 |" in text
    assert "| tuned | 4.2.0 | 4.00 |" in text  # the run that failed isn't in the median
    assert "Goal 2 × JVM, on 4.2.0: met." in text
    assert "Goal 1.4 × tuned, on 4.2.0: missed." in text


def test_what_failed_is_said() -> None:
    text = spark_table.markdown(STORE)
    assert "| broken | 4.2.0 | failed | no kernel |" in text
    assert "Not measured: no Java" in text
    assert text.count("Goal") == 2  # a lane that failed meets and misses nothing


def test_micro_batches() -> None:
    text = spark_table.markdown(STORE)
    assert "| JVM | 4.2.0 | 2.00 | 0.200 | 0.100–0.300 |" in text
    assert "| Odradek | 4.2.0 | failed |" in text
