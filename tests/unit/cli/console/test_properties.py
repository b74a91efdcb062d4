"""Test property files, `key=value` arguments, and the resulting client configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.console.client_settings import client_config
from odradek.cli.console.properties import (
    UsageError,
    line_settings,
    parse_words,
    refuse_what_is_not_there,
    truth,
)
from odradek.common.options.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# a comment\n! another\n\n  \t\n", {}),
        ("bootstrap.servers=a:1,b:2\n", {"bootstrap.servers": "a:1,b:2"}),
        ("a = b", {"a": "b"}),
        ("  a :b  ", {"a": "b  "}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("=b", {"": "b"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one, \\\n   two", {"a": "one, two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=x\\\n# no comment\nb=2", {"a": "x# no comment", "b": "2"}),
        ("a=end\\", {"a": "end"}),
        ("key.separator=\\t", {"key.separator": "\t"}),
        ("a\\ b\\=c=d\\u00e9\\q", {"a b=c": "déq"}),
        ("a=C\\:\\\\dir", {"a": "C:\\dir"}),
        ("café=crème", {"café": "crème"}),
    ],
)
def test_a_property_file_is_parsed_as_by_java(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_arguments_of_the_form_key_value_are_parsed() -> None:
    words = ["a=1", "b=", "c", "d=x=y"]
    assert parse_words(words, "--property") == {"a": "1", "b": "", "c": "", "d": "x=y"}
    with pytest.raises(UsageError, match="--property: expected key=value, not '=1'"):
        parse_words(["=1"], "--property")


def test_flags_override_properties_which_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=1\nbatch.size=1\nclient.id=mine\nbootstrap.servers=x:1\n")
    params = {
        "command_config": file,
        "command_property": ["linger.ms=2", "batch.size=2"],
        "bootstrap_server": "a:1",
        "batch_size": 3,
        "timeout": None,
    }
    flags = {
        "bootstrap_server": "bootstrap.servers",
        "batch_size": "batch.size",
        "timeout": "linger.ms",
    }
    assert client_config(params, tool="producer", flags=flags) == {
        "bootstrap.servers": "a:1",
        "linger.ms": "2",
        "batch.size": "3",
        "client.id": "mine",
    }


def test_older_flag_names_are_accepted_but_not_both_names_at_once() -> None:
    old = {"consumer_property": ["fetch.min.bytes=5", "bootstrap.servers=a:1"]}
    found = client_config(old, tool="consumer", flags={}, environment={})
    assert found == {
        "fetch.min.bytes": "5",
        "bootstrap.servers": "a:1",
        "client.id": "console-consumer",
    }
    both = {**old, "command_property": ["fetch.min.bytes=6"]}
    with pytest.raises(UsageError, match="--command-property and --consumer-property"):
        client_config(both, tool="consumer", flags={})
    files = {"command_config": Path("a"), "producer_config": Path("b")}
    with pytest.raises(UsageError, match=r"--command-config and --producer\.config"):
        client_config(files, tool="producer", flags={})


def test_an_unreadable_file_is_rejected_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere can't be read: No such file"):
        client_config({"command_config": tmp_path / "nowhere"}, tool="producer", flags={})
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"a=\xff")
    with pytest.raises(UsageError, match="wrong isn't UTF-8"):
        client_config({"command_config": wrong}, tool="producer", flags={})


def test_unknown_properties_for_input_lines_are_rejected_with_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "reader.properties"
    file.write_text("parse.key=true\nkey.separator=:\n")
    known = ("parse.key", "key.separator")

    def settings(**params: object) -> dict[str, str]:
        return line_settings(params, new="reader_property", file="reader_config", known=known)

    assert settings(reader_config=file, reader_property=["key.separator=;"]) == {
        "parse.key": "true",
        "key.separator": ";",
    }
    assert settings(old_property=["parse.key=true"]) == {"parse.key": "true"}
    with pytest.raises(UsageError, match=r"'parse\.keys'; did you mean parse\.key\?"):
        settings(old_property=["parse.keys=true"])


def test_a_boolean_property_is_true_only_if_its_value_is_true_in_any_case() -> None:
    settings = {"a": " TRUE ", "b": "yes", "c": "false"}
    assert [truth(settings, name) for name in "abcd"] == [True, False, False, False]
    assert truth({}, "d", default=True)


def test_an_unsupported_flag_is_rejected_by_its_name() -> None:
    refuse_what_is_not_there({"group": None}, {"group": "later"})
    with pytest.raises(UsageError, match=r"--group is not supported: later"):
        refuse_what_is_not_there({"group": "g"}, {"group": "later"})
