"""Test that `sasl.jaas.config` is parsed by Java's grammar, and that errors don't show its text."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ConfigurationError
from odradek.common.options.jaas import LoginModule, parse_jaas
from odradek.common.secret import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def parsed(text: str) -> LoginModule:
    return parse_jaas(Secret(text))


def options(text: str) -> dict[str, str]:
    return {name: value.reveal() for name, value in parsed(text).options.items()}


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        (f"{PLAIN} required;", "PlainLoginModule", {}),
        (
            f'{PLAIN} required username="alice" password="s";',
            "PlainLoginModule",
            {"username": "alice", "password": "s"},
        ),
        (
            (
                "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule REQUIRED\n"
                "  username='al\"ice'\n  password=word tokenauth=true ;\n"
            ),
            "ScramLoginModule",
            {"username": 'al"ice', "password": "word", "tokenauth": "true"},
        ),
        (
            r'Plain optional password="a\"b\\c\t\101\x=;//no comment";',
            "Plain",
            {"password": 'a"b\\c\tAx=;//no comment'},
        ),
        (
            "/* first */ Plain sufficient // to the end\n a=b / this as well\n c = 'd';",
            "Plain",
            {"a": "b", "c": "d"},
        ),
        ('a.b.Outer$Inner requisite x-y="";', "Outer$Inner", {"x-y": ""}),
        ("Plain required serviceName=kafka_1.x-y$z;", "Plain", {"serviceName": "kafka_1.x-y$z"}),
        ("Plain required username=\u00fcml\u00e4ut;", "Plain", {"username": "\u00fcml\u00e4ut"}),
    ],
)
def test_jaas_configurations_that_java_accepts_are_parsed(
    text: str, name: str, found: dict[str, str]
) -> None:
    assert parsed(text).name == name
    assert options(text) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("  // nothing\n", "is empty"),
        ("KafkaClient { x required; };", "begins with KafkaClient"),
        ("; x", "doesn't begin with the class name"),
        ("a.b.PlainLoginModule", "login module's name must be followed"),
        (f"{PLAIN} username='planted';", "login module's name must be followed"),
        (f"{PLAIN} required username='planted'", "the semicolon at the end is missing"),
        (f"{PLAIN} required username 'planted';", "the = after the name of username is missing"),
        (
            f"{PLAIN} required password=planted@1;",
            "the value of password is followed by an unexpected character",
        ),
        (
            f"{PLAIN} required password=1planted;",
            "the value of password can.t be read.*put it in quotes",
        ),
        (f"{PLAIN} required password=;", "the value of password can.t be read"),
        (f"{PLAIN} required password='planted;", "a quoted value isn't closed"),
        (f"{PLAIN} required password='plan\nted';", "a quoted value isn't closed"),
        (f"{PLAIN} required a='b'; {PLAIN} required;", "a second login module"),
        (f"{PLAIN} required planted planted;", "name of an option"),
    ],
)
def test_malformed_jaas_configurations_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"sasl.jaas.config: .*{problem}") as caught:
        parsed(text)
    assert "planted" not in str(caught.value)


def error_of(secret: Secret) -> ConfigurationError | None:
    try:
        parse_jaas(secret)
    except ConfigurationError as error:
        return error
    return None


@given(st.text(alphabet="ab1\"'=;\\ \n/*@.-$", max_size=40))
def test_any_text_is_parsed_or_rejected_without_showing_its_secrets(text: str) -> None:
    secret = Secret(f"{PLAIN} required password={text}planted-word")
    error = error_of(secret)
    if error is None:
        assert "planted" not in repr(parse_jaas(secret))
        return
    assert "planted" not in str(error)
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    own = [frame for frame in shown.stack if frame.filename.endswith("/common/options/jaas.py")]
    assert own
    for frame in own:
        assert "planted" not in str(frame.locals)


@pytest.mark.slow
@given(st.text(max_size=30).filter(lambda t: not set(t) & set("\r\n")))
def test_a_quoted_value_round_trips(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert options(f'{PLAIN} required password="{quoted}";') == {"password": value}
