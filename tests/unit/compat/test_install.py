"""Test that imports of another client return the compat module after `install()`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek import ArgumentError
from odradek.compat import install

PROGRAM = """
from odradek.compat import install
install("{name}")
install("{name}")
import {name}
import {submodule}
from {submodule} import {attribute}
import odradek.compat.{submodule} as ours
assert {name}.__name__ == "odradek.compat.{name}", {name}.__name__
assert ours.{attribute} is {attribute}
assert {submodule} is ours
"""
LATE = """
import {name}
from odradek.compat import install
install("{name}")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "submodule", "attribute"),
    [
        ("aiokafka", "aiokafka.errors", "KafkaError"),
        ("aiokafka", "aiokafka.coordinator.assignors.roundrobin", "RoundRobinPartitionAssignor"),
        ("confluent_kafka", "confluent_kafka.admin", "AdminClient"),
    ],
)
def test_imports_by_both_names_return_the_same_module(
    name: str, submodule: str, attribute: str
) -> None:
    done = run(PROGRAM.format(name=name, submodule=submodule, attribute=attribute))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_install_after_the_import_of_the_library_raises_an_error() -> None:
    done = run(LATE.format(name="aiokafka"))
    assert done.returncode == 1
    assert "call install('aiokafka') before its first import" in done.stderr


def test_install_rejects_the_names_of_other_libraries() -> None:
    with pytest.raises(ArgumentError, match="not 'kafka'"):
        install("kafka")  # type: ignore[arg-type]
