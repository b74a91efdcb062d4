"""An older PySpark is rejected with an error that names the minimum version and the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.datasource import DataSource

import odradek.spark
from odradek.spark.versions import LEAST, check_version

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.3.0.dev1", "5.0.0", "10.0", "nightly"])
def test_supported_pyspark_versions_are_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("version", "lacks", "has"),
    [
        ("3.5.4", "data sources written in Python", None),
        ("4.0.1", "streaming sinks with Arrow batches", "data sources written in Python;"),
        ("4.1.0.dev2", "Trigger.AvailableNow", "Arrow batches"),
    ],
)
def test_older_pyspark_versions_are_rejected_with_the_reason(
    version: str, lacks: str, has: str | None
) -> None:
    with pytest.raises(ImportError) as caught:
        check_version(version)
    for words in ("PySpark 4.2 or newer", f"PySpark {version}", lacks, "AvailableNow"):
        assert words in str(caught.value)
    assert has is None or has not in str(caught.value)


def test_using_the_format_with_an_old_pyspark_raises_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importing the module mustn't fail, because Spark imports it also for other formats."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    monkeypatch.delitem(
        vars(odradek.spark), "KafkaDataSource", raising=False
    )  # remove the cached class
    with pytest.raises(ImportError, match="PySpark 4.2 or newer, but this is PySpark 4.1.1"):
        odradek.spark.KafkaDataSource  # noqa: B018 - importing it is the point
    text = (ROOT / "src" / "pyspark_odradek" / "__init__.py").read_text()
    found: dict[str, type[DataSource]] = {}
    exec(compile(text, "pyspark_odradek", "exec"), found)  # noqa: S102 - our own text
    assert found["DefaultSource"].name() == "odradek"
    with pytest.raises(ImportError, match="this is PySpark 4.1.1, which lacks micro-batch limits"):
        found["DefaultSource"]({})


def test_pyproject_requires_the_same_pyspark_version() -> None:
    asked = re.findall(r"pyspark(?:\[\w+\])?>=([\d.]+)", (ROOT / "pyproject.toml").read_text())
    assert asked
    assert set(asked) == {f"{LEAST[0]}.{LEAST[1]}"}
