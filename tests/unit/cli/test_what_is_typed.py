"""Test parsing of words, times, partitions, quotas and passwords on the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from odradek.cli.brokers.quotas import entity, told, wanted
from odradek.cli.console.properties import UsageError
from odradek.cli.frame.argument_values import listed, one_word
from odradek.cli.frame.passwords import read_password
from odradek.cli.frame.timestamps import parse_moment, shown_moment
from odradek.cli.topics.offsets import parse_time
from odradek.cli.topics.partitions import parse_scope
from odradek.clients.admin.users import ClientQuotaEntity

NOBODY = (None, False, "")


def test_kafkas_words_are_accepted_in_any_case_and_with_any_separator() -> None:
    words = ("PreparingRebalance", "DESCRIBE_CONFIGS")
    assert one_word("--x", "preparing-rebalance", words) == "PreparingRebalance"
    assert one_word("--x", "DescribeConfigs", words) == "DESCRIBE_CONFIGS"
    with pytest.raises(UsageError, match="--x: unknown value 'describe-config'; did you mean DESC"):
        one_word("--x", "describe-config", words)
    with pytest.raises(UsageError, match="use one of PreparingRebalance, DESCRIBE_CONFIGS"):
        one_word("--x", "?", words)
    assert listed("abc") == "a, b, c"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"


def test_times_are_parsed_and_formatted() -> None:
    assert parse_moment("--t", "1700000000000") == 1_700_000_000_000
    assert parse_moment("--t", "2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_moment("--t", "2023-11-14T23:13:20.001+01:00") == 1_700_000_000_001
    for text in ("1969-12-31T23:59:59Z", "2023-13-01", "now", "²"):
        with pytest.raises(UsageError, match="--t: "):
            parse_moment("--t", text)
    assert shown_moment(1_700_000_000_001) == "2023-11-14T22:13:20.001Z"
    assert (shown_moment(None), shown_moment(-1), shown_moment(2**62)) == ("-", "-", str(2**62))
    with pytest.raises(UsageError, match="--time: use earliest instead of -2"):
        parse_time("-2")
    with pytest.raises(UsageError, match="use one of latest, earliest, max-timestamp"):
        parse_time("?")
    assert (parse_time("max-timestamp"), parse_time("1970-01-01")) == ("MAX_TIMESTAMP", 0)


def test_topics_with_partitions_are_parsed() -> None:
    assert parse_scope(["a", "b:0,2", "b:2,1", "c:1", "c"]) == {
        "a": None,
        "b": [0, 2, 1],
        "c": None,
    }
    for word in (":0", "a:", "a:x", "a:-1", f"a:{2**31}", "a:0,", ""):
        with pytest.raises(UsageError):
            parse_scope([word])


def test_the_entity_of_a_quota_is_parsed() -> None:
    alice = entity(("alice", False, "user"), (None, True, "client"), (None, False, "ip"))
    assert alice == ClientQuotaEntity("alice", ClientQuotaEntity.DEFAULT)
    assert told(alice) == "user alice with any other client id"
    for given in (
        (NOBODY, NOBODY, NOBODY),
        (("a", False, "user"), NOBODY, ("10.0.0.1", False, "ip")),
        (("a", True, "user"), NOBODY, NOBODY),
        (("", False, "user"), NOBODY, NOBODY),
    ):
        with pytest.raises(UsageError):
            entity(*given)


def test_unknown_or_invalid_quotas_are_rejected() -> None:
    alice, here = ClientQuotaEntity("alice"), ClientQuotaEntity(ip="10.0.0.1")
    found = wanted(["producer_byte_rate=1e6"], ["request_percentage"], alice)
    assert found == {"producer_byte_rate": 1e6, "request_percentage": None}
    for given, away, whom, said in (
        ((), (), alice, "no change is given"),
        (("producer_byte_rat=1",), (), alice, "did you mean producer_byte_rate"),
        (("producer_byte_rate=1",), (), here, "its quotas are connection_creation_rate"),
        (("request_percentage=x",), (), alice, "expected a number"),
        (("request_percentage=nan",), (), alice, "expected a number"),
        (("request_percentage=-1",), (), alice, "expected a number"),
        (("request_percentage=1",), ("request_percentage",), alice, "is both set and removed"),
    ):
        with pytest.raises(UsageError, match=said):
            wanted(given, away, whom)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_password_can_come_from_a_file_or_variable_or_argument_or_pipe_or_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "word"
    file.write_text("of a file\nmore\n")
    assert read_password("u", file, None, None).reveal() == "of a file"
    monkeypatch.setenv("WORD", "of the environment")
    assert read_password("u", None, "WORD", None).reveal() == "of the environment"
    assert read_password("u", None, None, "seen").reveal() == "seen"
    monkeypatch.setattr("sys.stdin", io.StringIO("of a pipe\r\n"))
    assert read_password("u", Path("-"), None, None).reveal() == "of a pipe"
    monkeypatch.setattr("sys.stdin", Terminal())
    typed = iter(["secret", "secret", "one", "other"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(typed))
    assert read_password("u", None, None, None).reveal() == "secret"
    with pytest.raises(UsageError, match="the two passwords differ"):
        read_password("u", None, None, None)


def test_missing_or_unusable_passwords_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.delenv("WORD", raising=False)
    for file, variable, visible, said in (
        (None, None, None, "there is no terminal to ask"),
        (empty, None, None, "the password of user 'u' is empty"),
        (binary, None, None, "isn't UTF-8"),
        (tmp_path / "none", None, None, "can't be read"),
        (None, "WORD", None, "environment variable WORD is not set"),
        (empty, None, "seen", "use only one of"),
    ):
        with pytest.raises(UsageError, match=said):
            read_password("u", file, variable, visible)
