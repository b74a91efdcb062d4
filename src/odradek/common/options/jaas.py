"""Read `sasl.jaas.config`, so that settings written for Java clients work unchanged.

In: the text of one login module with its options. Out: `LoginModule`: the module's short name, and
its options as secrets. Must not: know the meaning of the options (`common.security` does), or quote
the text, which contains a password, in an error.

The text is read as by Java's own tokenizer: words, quoted texts with backslashes, `//`, `/* */` and
`/` comments; numbers and words with other characters have to be in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret

OPTION = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")
NAMEABLE = frozenset(
    (
        *("username", "password", "tokenauth", "clientId", "clientSecret", "scope", "useKeyTab"),
        *("keyTab", "storeKey", "principal", "useTicketCache", "ticketCache", "serviceName"),
        *("renewTicket", "doNotPrompt", "awsProfileName", "awsRoleArn", "awsDebugCreds"),
    )
)
"""Names of options that an error may show, as any other word may be a part of a password."""

_TOKEN = re.compile(
    r"""
    (?P<space>[\x00-\x20]+)
  | (?P<comment>/\*.*?\*/ | /[^\r\n]*)
  | (?P<quoted>"(?:\\[^\r\n]|[^"\\\r\n])*" | '(?:\\[^\r\n]|[^'\\\r\n])*')
  | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: the last part of its Java class name, and its options."""

    name: str
    options: Mapping[str, Secret]

    def text(self, option: str) -> str | None:
        """Return an option's value; None if it isn't set."""
        found = self.options.get(option)
        return None if found is None else found.reveal()

    def true(self, option: str) -> bool:
        """Return whether an option is true, as Java reads it."""
        return (self.text(option) or "").strip().lower() == "true"


class _JaasError(Exception):
    """An error in a JAAS text; its message doesn't quote the text, which contains passwords."""


def parse_jaas(jaas: Secret) -> LoginModule:
    """Parse `sasl.jaas.config`.

    Errors are raised in this frame, whose local variables (see tracebacks) don't contain the text.
    """
    found = _read(jaas)
    if isinstance(found, LoginModule):
        return found
    raise ConfigurationError(
        f"{OPTION}: {found}. Expected for example: "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" '
        'password="…";'
    )


def _read(jaas: Secret) -> LoginModule | str:
    tokens = _tokens(jaas.reveal())
    try:
        module = _module(tokens)
        for kind, _ in tokens:
            return f"a second login module or other text follows the first one ({kind})"
    except _JaasError as problem:
        return str(problem)
    return module


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield each token with its kind: a word, a quoted text, or a single character."""
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup, match.group()
        if kind in ("space", "comment"):
            continue
        if kind == "quoted":
            yield "text", _ESCAPE.sub(_unescaped, found[1:-1])
        elif kind == "word":
            yield "word", found
        elif found in "\"'":
            raise _JaasError("a quoted value isn't closed on its line")
        else:
            yield "character", found


def _unescaped(match: re.Match[str]) -> str:
    octal, letter = match.groups()
    return chr(int(octal, 8)) if octal else _LETTERS.get(letter, letter)


def _module(tokens: Iterator[tuple[str, str]]) -> LoginModule:
    kind, name = next(tokens, ("end", ""))
    if kind == "end":
        raise _JaasError("the value is empty")
    if kind == "word" and name == "KafkaClient":
        raise _JaasError("the value begins with KafkaClient: use only the text between { and }")
    if kind not in ("word", "text") or not re.fullmatch(r"[\w$.]+", name):
        raise _JaasError("the value doesn't begin with the class name of a login module")
    kind, flag = next(tokens, ("end", ""))
    if kind not in ("word", "text") or flag.lower() not in FLAGS:
        raise _JaasError(f"the login module's name must be followed by one of {', '.join(FLAGS)}")
    options: dict[str, Secret] = {}
    last = "the flag"
    while True:
        kind, key = next(tokens, ("end", ""))
        if (kind, key) == ("character", ";"):
            return LoginModule(name.rpartition(".")[2], options)
        if kind == "end":
            raise _JaasError("the semicolon at the end is missing")
        if kind == "character":
            raise _JaasError(
                f"{last} is followed by an unexpected character: quote values that contain "
                "anything but letters, digits, - _ . and $"
            )
        here = key if key in NAMEABLE else "an option"
        if next(tokens, ("end", "")) != ("character", "="):
            raise _JaasError(f"the = after the name of {here} is missing (after {last})")
        kind, value = next(tokens, ("end", ""))
        if kind not in ("word", "text"):
            raise _JaasError(f"the value of {here} can't be read: put it in quotes (numbers too)")
        options[key] = Secret(value)
        last = f"the value of {here}"
