r"""`subscribePattern`: a regular expression in Java's language, over the names of topics.

In: the option's text. Out: the same expression in Python's language, or an error that names the
part that Python doesn't support. Must not know topics.

Names of topics are ASCII letters, digits, dots, dashes and underscores, so that classes such as
`\p{Alpha}` mean the same in both languages there. As with the JVM connector a name need only
*contain* a match: `^` and `$` anchor it.
"""

from __future__ import annotations

import re

from odradek.spark.checkpoint_errors import OptionError

_CLASSES = {
    "lower": "a-z",
    "upper": "A-Z",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "punct": "!-/:-@\\[-`{-~",
    "ascii": "\\x00-\\x7f",
    "graph": "!-~",
    "print": " -~",
    "blank": " \\t",
    "space": "\\s",
    "cntrl": "\\x00-\\x1f\\x7f",
    "xdigit": "0-9a-fA-F",
    "l": "a-zA-Z",
    "lu": "A-Z",
    "ll": "a-z",
    "n": "0-9",
    "nd": "0-9",
    "isalphabetic": "a-zA-Z",
    "isletter": "a-zA-Z",
    "isdigit": "0-9",
    "isuppercase": "A-Z",
    "islowercase": "a-z",
    "javalowercase": "a-z",
    "javauppercase": "A-Z",
    "javaletter": "a-zA-Z",
    "javadigit": "0-9",
    "javaletterordigit": "a-zA-Z0-9",
}
"""Java's `\\p{…}` classes, limited to the characters of topic names."""
_AS_THEY_ARE = "dDwWsSbBAtnrfvaxu.\\/-_+*?()[]{}|^$&~#<>=!:;,@%\"'` 123456789"
"""Characters that may follow a backslash in both languages, with the same meaning."""
_ELSEWHERE = {"z": r"\Z", "Z": r"\Z", "h": r"[ \t]", "e": r"\x1b", "R": r"(?:\r\n|[\n-\r])"}


class _Translation:
    """One expression while it is translated from Java to Python."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._out: list[str] = []

    def _refuse(self, part: str) -> OptionError:
        return OptionError(
            f"option subscribePattern: {self._text!r}: {part} of Java's regular expressions is "
            "not supported; rewrite the expression, or list the topics in option subscribe"
        )

    def _rest(self) -> str:
        return self._text[self._at :]

    def run(self) -> str:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._out.append(self._escape(in_class=False))
            elif char == "[":
                self._class()
            elif self._rest().startswith("(?"):
                self._group()
            else:
                self._out.append(char)
                self._at += 1
        return "".join(self._out)

    def _escape(self, *, in_class: bool) -> str:
        rest = self._rest()
        if rest.startswith("\\Q"):
            quoted, _, _ = rest[2:].partition("\\E")
            self._at += 2 + len(quoted) + (2 if "\\E" in rest else 0)
            return re.escape(quoted)
        if match := re.match(r"\\([pP])(?:\{(\^?)([^}]*)\}|([A-Z]))", rest):
            letter, _, name, short = match.groups()
            known = _CLASSES.get((name or short or "").lower())
            if known is None or match[2] or (in_class and letter == "P"):
                raise self._refuse(match[0])
            self._at += match.end()
            return known if in_class else f"[{'^' if letter == 'P' else ''}{known}]"
        if match := re.match(r"\\k<([A-Za-z][A-Za-z0-9]*)>", rest):
            self._at += match.end()
            return f"(?P={match[1]})"
        if match := re.match(r"\\x\{([0-9A-Fa-f]+)\}", rest):
            self._at += match.end()
            return f"\\U{int(match[1], 16):08x}"
        if match := re.match(r"\\0([0-3]?[0-7]{1,2})", rest):
            self._at += match.end()
            return f"\\x{int(match[1], 8):02x}"
        char = rest[1:2]
        if char and char in _ELSEWHERE and not in_class:
            self._at += 2
            return _ELSEWHERE[char]
        if not char or char not in _AS_THEY_ARE:
            raise self._refuse(rest[:2] if char else "a backslash at the end")
        self._at += 2
        return f"\\{char}"

    def _class(self) -> None:
        self._out.append("[")
        self._at += 1
        if self._rest().startswith("^"):
            self._out.append("^")
            self._at += 1
        first = True
        while True:
            rest = self._rest()
            if not rest:
                raise self._refuse("an unclosed character class")
            if rest[0] == "]" and not first:
                break
            if rest.startswith("&&"):
                raise self._refuse("&& (a class intersection)")
            if rest[0] == "[":
                raise self._refuse("a nested character class")
            if rest[0] == "\\":
                self._out.append(self._escape(in_class=True))
            else:
                # Python warns of some doubled characters, which may get a meaning in a later
                # release.
                self._out.append(f"\\{rest[0]}" if rest[0] in "&~|" else rest[0])
                self._at += 1
            first = False
        self._out.append("]")
        self._at += 1

    def _group(self) -> None:
        rest = self._rest()
        if match := re.match(r"\(\?<([A-Za-z][A-Za-z0-9]*)>", rest):
            self._out.append(f"(?P<{match[1]}>")
        elif match := re.match(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])", rest):
            flags = match[1] + (match[2] or "")
            if set(flags) - set("imsx-") or (match[3] == ")" and (self._at or match[2])):
                raise self._refuse(match[0])
            self._out.append(match[0])
        elif match := re.match(r"\(\?(?:=|!|<=|<!|>)", rest):
            self._out.append(match[0])
        else:
            raise self._refuse(rest[:4])
        self._at += match.end()


def compiled(text: str) -> re.Pattern[str]:
    """Compile a Java regular expression; `search` tells whether a topic name matches."""
    pattern = text.strip()
    if not pattern:
        raise OptionError("option subscribePattern is empty")
    try:
        return re.compile(_Translation(pattern).run(), re.ASCII)
    except re.error as error:
        raise OptionError(
            f"option subscribePattern isn't a valid regular expression: {error}: {pattern!r}"
        ) from None
