"""Test `odradek options`: a single option, all options of a client, unknown names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek.cli import build
from odradek.common.options.ignored_settings import HARMLESS
from odradek.common.options.table import OPTIONS


def run(*words: str) -> Any:
    return CliRunner().invoke(build("options"), ["options", *words])


def told(*words: str) -> list[dict[str, Any]]:
    done = run(*words, "--json")
    assert done.exit_code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)["options"]
    return found


def test_an_option_is_printed_with_type_default_and_description() -> None:
    said = " ".join(run("max_batch_size").stdout.split())
    for part in ("batch.size", OPTIONS["batch.size"].doc, "1 to 2147483647", "default: 131072",
                 "Java 16384, librdkafka 1000000.", "other names: max.batch.size"):  # fmt: skip
        assert part in said


def test_json_output_contains_every_field_of_an_option() -> None:
    [one] = told("kafka.fetch.wait.max.ms")
    assert one == {
        "name": "fetch.max.wait.ms",
        "group": "Consumer",
        "clients": ["consumer"],
        "type": "milliseconds",
        "range": "0 to 2147483647",
        "default": "500",
        "importance": "low",
        "text": OPTIONS["fetch.max.wait.ms"].doc,
        "kip": None,
        "aliases": ["fetch.wait.max.ms"],
        "java": None,
        "librdkafka": None,
        "why": None,
    }
    names = [(one["name"], one["group"]) for one in told("includeheaders")]
    assert names == [("includeHeaders", "Spark source"), ("includeHeaders", "Spark sink")]


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
def test_options_can_be_listed_for_one_kind_of_client(client: str) -> None:
    wanted = {one.name for one in OPTIONS.values() if client in one.clients}
    assert {one["name"] for one in told("--client", client)} == wanted
    listed = run("--client", client).stdout
    assert all(f"\n  {name} [" in listed for name in wanted)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bacth.size"], "unknown option 'bacth.size'; did you mean batch.size?"),
        (["linger", "--client", "producer"], "did you mean linger.ms?"),
        (["acks", "--client", "consumer"], "of the consumer; acks is an option of another kind"),
        (["dr_cb"], "on_delivery=function"),
        (["startingOfsets"], "did you mean startingOffsets?"),
    ],
)
def test_an_unknown_option_name_is_rejected_with_a_suggestion(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_setting_of_other_clients_is_explained() -> None:
    done = run("log_queue")
    why = HARMLESS["log.queue"]
    said = f"log.queue is accepted but has no effect: {why}.\n"
    assert (done.exit_code, done.stdout) == (0, said)
    done = run("batch.num.messages")
    assert done.exit_code == 0
    assert "batches are limited by bytes, not by records: batch.size" in done.stdout
    done = run("schema.registry.url")
    assert done.exit_code == 0
    assert "it belongs to the registry client" in done.stdout
