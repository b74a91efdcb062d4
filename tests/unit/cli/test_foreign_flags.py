"""Test the errors for flags of kafka-topics and kcat: they name the flags of odradek."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from odradek.cli import build
from odradek.cli.console.properties import UsageError, parse_values
from odradek.cli.frame.partition_arguments import option_changes


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("topics --describe --topic flights", "describe is a subcommand: odradek topics describe"),
        ("acls --add", "create is a subcommand: odradek acls create"),
        ("topics describe --topic flights", "odradek topics describe TOPIC"),
        ("offsets list --topic flights", "odradek offsets list TOPIC"),
        ("groups describe --group g", "odradek groups describe GROUP"),
        ("groups lag --all-groups", "leave GROUP out for all groups"),
        ("groups reset-offsets g --execute", "use --yes"),
        ("topics alter flights --partitions 12", "odradek topics create-partitions"),
        ("configs alter topic t --add-config a=1", "use --set"),
        ("consume --topic t --bootstrap-server a:1 -o 1", "use --offset"),
        ("produce --topic t --bootstrap-server a:1 -K :", "use --reader-property parse.key=true"),
        ("produce flights --bootstrap-server a:1", "a topic needs its flag: --topic flights"),
        ("consume flights --bootstrap-server a:1", "a topic needs its flag: --topic flights"),
        ("topics list localhost:9092", "for brokers use --bootstrap-server localhost:9092"),
        ("consume a:1,b:2 --topic t", "for brokers use --bootstrap-server a:1,b:2"),
        ("groups list [::1]:9092", "for brokers use --bootstrap-server [::1]:9092"),
    ],
)
def test_an_error_for_a_flag_of_another_tool_names_the_flag_of_odradek(
    typed: str, said: str
) -> None:
    words = typed.split()
    result = CliRunner().invoke(build(words[0]), words)
    assert result.exit_code == 2
    assert said in result.output
    assert "Possible options" not in result.output


def test_other_misspelt_words_get_their_usual_suggestion() -> None:
    app = build("topics")
    near = CliRunner().invoke(app, ["topics", "create", "t", "--partition", "3"])
    assert "Possible options: --partitions" in near.output
    assert ";" not in near.output
    wrong = CliRunner().invoke(build("configs"), ["configs", "describe", "topics", "t"])
    assert "'topics' is not one of 'topic'" in wrong.output
    assert "Value error" not in wrong.output


def test_help_shows_repeatable_arguments_in_single_brackets() -> None:
    for words in (["groups", "lag"], ["transactions", "abort"]):
        assert "[[" not in CliRunner().invoke(build(words[0]), [*words, "--help"]).output


def test_a_missing_value_is_not_treated_as_an_empty_value() -> None:
    with pytest.raises(
        UsageError, match="--set: expected KEY=VALUE, not 'retention.ms'; for an empty"
    ):
        option_changes(["retention.ms"], None, None, None)
    assert parse_values(["a=", "b=c=d"], "--config") == {"a": "", "b": "c=d"}
