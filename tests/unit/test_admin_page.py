"""docs/features.md names every method of Odradek's admin clients and of kafka-python's.

Java's methods are compared in interop/test_admin_answers.py, which needs Kafka's jars.
"""

from __future__ import annotations

import inspect
import re
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import odradek

ROOT = Path(__file__).parents[2]
OF_ALL = {"client_instance_id", "cluster_id", "ended", "explain", "health", "listen", "metrics",
          "set_sasl_credentials"}  # fmt: skip
"""Methods that all kinds of clients have; other pages describe them."""


def table() -> list[list[str]]:
    """Return the page's rows: methods of Java, kafka-python and Odradek, and their tests."""
    text = (ROOT / "docs/features.md").read_text()
    section = text.partition("\n## Admin\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| [^|-]|\| – ", line)]
    return [[c.strip() for c in line.strip("|\n ").split(" | ")] for line in lines]


ROWS = table()


def names(column: int) -> list[str]:
    return [n for row in ROWS for n in re.findall(r"\w+", row[column]) if row[column] != "–"]


def public_methods(cls: type) -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and callable(member)
    }


@pytest.mark.parametrize("cls", [odradek.Admin, odradek.AsyncAdmin])
def test_each_method_of_our_admin_clients_has_one_row(cls: type) -> None:
    ours = names(2)
    assert len(ours) == len(set(ours)) > 50
    assert set(ours) == public_methods(cls) - OF_ALL


def test_each_method_of_kafka_pythons_admin_client_has_one_row() -> None:
    with warnings.catch_warnings():  # importing kafka-python warns of a deprecation
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs: type = import_module("kafka.admin").KafkaAdminClient
    assert sorted(names(1)) == sorted(public_methods(theirs))


def test_each_row_names_an_existing_simulated_test_and_an_integration_test() -> None:
    for row in ROWS:
        tests = re.findall(r"`([^`]+)`", row[3])
        kinds = {name.partition("/")[0] for name in tests}
        assert kinds >= {"simulation", "integration"} or row[2] in (
            *("describe_api_versions", "describe_reachability", "examine", "close"),
        ), row


def test_both_admin_clients_have_the_same_methods() -> None:
    for name in sorted(public_methods(odradek.Admin) - OF_ALL):
        ours, other = (getattr(cls, name) for cls in (odradek.Admin, odradek.AsyncAdmin))
        assert inspect.iscoroutinefunction(other)
        assert str(inspect.signature(ours)) == str(inspect.signature(other)), name
        first = (ours.__doc__ or "").partition("\n\n")[0].strip()
        assert (other.__doc__ or "").startswith(first), name
        if name != "close":
            assert f"See `Admin.{name}`." in other.__doc__
