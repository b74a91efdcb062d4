"""Test how Python functions become subcommands: flags, confirmation, exit statuses."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Annotated, Any, Self

import pytest
import typer
from typer.testing import CliRunner

from odradek.cli import COMPLETION, completed_words
from odradek.cli.frame import commands, completion
from odradek.cli.frame.commands import AdminRun, changes, destroys, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import InvalidTopicExceptionError

HERE = ("--bootstrap-server", "127.0.0.1:1")


def program() -> typer.Typer:
    app = overview("Things.")

    @reads(app, "list")
    def list_(run: AdminRun, names: list[str]) -> Result:
        """List things."""

        def call() -> None:
            error = InvalidTopicExceptionError("no thing")
            raise error.beside({"a": None}, {"b": error})

        found, failed = run.each(call, names)
        return Result({"things": list(found), "left": run.left()}, list(found), failed)

    @changes(app)
    def make(run: AdminRun, config: Annotated[list[str] | None, typer.Option()] = None) -> Result:
        """Make a thing."""
        return Result({"config": config, "dry_run": run.dry_run})

    @destroys(app)
    def drop(run: AdminRun) -> Result:
        """Drop a thing."""
        run.confirm("drop a \x1b thing")
        return Result({}, ["Dropped."])

    @reads(app)
    def late(run: AdminRun) -> Result:
        """Raise a timeout error."""
        raise KafkaTimeoutError("too late")

    @app.callback()
    def _root() -> None:
        return None

    root = overview("All.", "odradek")
    root.add_typer(app, name="things")
    return root


def called(*words: str, given: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(program(), ["things", *words], input=given)
    return done.exit_code, done.stdout, done.stderr


def test_if_some_items_fail_the_results_of_the_other_items_are_printed() -> None:
    assert called("list", "a", "b", *HERE) == (
        1,
        "a\n",
        "odradek things list: InvalidTopicExceptionError: no thing\n",
    )
    code, out, _ = called("list", "a", "b", "--json", "--timeout", "0", *HERE)
    assert code == 1
    assert json.loads(out) == {
        "things": ["a"],
        "left": 0.0,
        "failed": {"b": {"error": "InvalidTopicExceptionError", "code": 17, "message": "no thing"}},
    }


def test_with_json_an_error_of_the_whole_command_is_a_json_document() -> None:
    code, out, err = called("late", "--json", *HERE)
    assert code == 1
    error = {"error": "KafkaTimeoutError", "code": None, "message": "too late"}
    assert json.loads(out) == {"failed": {}, "error": error}
    assert err == "odradek things late: KafkaTimeoutError: too late\n"


def test_config_sets_client_options_unless_the_command_has_its_own_config_option() -> None:
    code, _, err = called("late", "--config", "what=1", *HERE)
    assert (code, "unknown option 'what'" in err) == (2, True)
    code, out, _ = called("make", "--config", "what=1", "--dry-run", "--json", *HERE)
    assert (code, json.loads(out)) == (0, {"config": ["what=1"], "dry_run": True, "failed": {}})
    code, _, err = called("make", "--command-property", "what=1", *HERE)
    assert (code, "unknown option 'what'" in err) == (2, True)


def test_a_destructive_command_without_a_terminal_needs_the_flag_yes() -> None:
    code, out, err = called("drop", *HERE)
    assert (code, out) == (2, "")
    assert err.startswith("odradek things drop: this would drop a \\x1b thing, but there is no")
    assert "--yes" in err
    assert "--dry-run" in err
    for word in ("--yes", "--dry-run"):
        assert called("drop", word, *HERE) == (0, "Dropped.\n", "")


@pytest.mark.parametrize(
    ("answer", "status"), [("y", 0), ("YES", 0), ("n", 1), ("", 1), ("yeah", 1)]
)
def test_a_destructive_command_asks_for_confirmation(
    monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    def terminal() -> Any:
        return SimpleNamespace(isatty=lambda: True, readline=lambda: f"{answer}\n")

    class Asked(AdminRun):
        def confirm(self, what: str) -> None:
            monkeypatch.setattr("sys.stdin", terminal())
            super().confirm(what)

    monkeypatch.setattr(commands, "AdminRun", Asked)
    code, out, err = called("drop", *HERE)
    assert code == status
    assert err.startswith("This will drop a \\x1b thing. Continue? [y/N] ")
    assert (out == "Dropped.\n") == (status == 0)
    assert ("Nothing was done." in err) == (status == 1)


def test_completion_offers_only_names_that_are_safe_in_a_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked:
        def __init__(self, given: dict[str, Any]) -> None:
            assert given["bootstrap.servers"] == "here:1"

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def list_topics(self, timeout: float) -> list[str]:
            assert timeout == completion.LIST_TIMEOUT_S
            return ["flights", "flo", "counts"]

        def list_groups(self, timeout: float) -> list[Any]:
            ids = ("g", "g$(rm -r .)", "g h", "g`x`", "g;x", "g\x1b")
            return [SimpleNamespace(group_id=one) for one in ids]

    monkeypatch.setattr(completion, "Admin", Asked)
    context: Any = SimpleNamespace(params={"bootstrap_server": "here:1"})
    assert completion.topic_names(context, "fl") == ["flights", "flo"]
    assert completion.group_ids(context, "") == ["g"]

    def one_is_silent(self: Asked, timeout: float) -> list[Any]:
        silent = KafkaTimeoutError("broker 2 is silent")
        raise silent.beside({1: [SimpleNamespace(group_id="g1")], 3: []}, {2: silent})

    monkeypatch.setattr(Asked, "list_groups", one_is_silent)
    assert completion.group_ids(context, "") == ["g1"], "what the others told is offered"

    def fails(_: object) -> Any:
        raise KafkaError("no")

    monkeypatch.setattr(completion, "Admin", fails)
    assert completion.topic_names(context, "") == []
    assert completion.topic_names(SimpleNamespace(params={}), "") == []  # type: ignore[arg-type]


def test_shell_completion_knows_the_words_before_the_completed_word() -> None:
    assert COMPLETION == "_ODRADEK_COMPLETE"
    assert completed_words({"COMP_WORDS": "odradek topics de"}) == ["topics", "de"]
    assert completed_words({"_TYPER_COMPLETE_ARGS": "odradek topics "}) == ["topics"]
    assert completed_words({}) == []
