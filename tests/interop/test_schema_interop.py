"""Compare the bytes of confluent-kafka's serializers and ours, with a third project's registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import building
from tests.time_limits import HANG_S

from odradek.testing import LocalRegistry

LOCK = Path(__file__).with_name("schema_packages.lock")
SCRIPT = Path(__file__).with_name("confluent_schemas.py")
FORMATS = (
    "avro", "avro-evolved", "avro-references", "avro-decimal", "json", "json-references",
    "protobuf", "protobuf-second", "protobuf-third",
)  # fmt: skip


@pytest.fixture(scope="module")
def found(registry: LocalRegistry) -> dict[str, Any]:
    built = building.python_with("schema-packages", LOCK)
    assert built.command is not None, built.reason
    (packages,) = Path(built.command[0]).parent.parent.glob("lib/python*/site-packages")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), registry.url],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("name", FORMATS)
def test_both_libraries_write_the_same_bytes(found: dict[str, Any], name: str) -> None:
    ours, theirs = found[name]["written"]
    assert ours == theirs


@pytest.mark.parametrize("name", FORMATS)
def test_each_library_reads_what_the_other_wrote(found: dict[str, Any], name: str) -> None:
    ours, theirs = found[name]["read"]
    assert ours == theirs
    if name != "avro-evolved":
        assert ours == found[name]["sent"]


@pytest.mark.parametrize("name", FORMATS)
def test_confluent_kafkas_serializers_work_in_odradeks_clients(
    found: dict[str, Any], name: str
) -> None:
    sent, *came = found["clients"][name]
    assert len(came) == 3
    assert set(came) == {came[0]}
    if name != "avro-evolved":
        assert came[0] == sent


def test_both_libraries_write_the_same_schema_ids_into_headers(found: dict[str, Any]) -> None:
    for ours, theirs in found["header"].values():
        assert ours == theirs
    assert found["header"]["name"][0] == "__value_schema_id"
