"""Write the JSON of spec cases and schedules in the compact form that a house test requires.

Each object of a list starts a line; a value that fits in 100 columns isn't split, and short members
of an object that doesn't fit share lines. With --check nothing is written: the files in another
form are listed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tests/spec/*/", "tests/simulation/schedules/")
COLUMNS = 100
SHORT = 60  # Characters; shorter members of a list or an object share lines.


def compact(value: Any) -> str:
    """Return the text of a JSON file with this value, in the compact form."""
    return "\n".join(_lines(value, "", "", top=True)) + "\n"


def _dumped(value: Any) -> str:
    """Return JSON on one line; only characters that UTF-8 can't encode are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _lines(value: Any, indent: str, key: str, *, top: bool = False) -> Iterator[str]:
    """Yield a value's lines; `key` is the text before the value; the top value is always split."""
    whole = indent + key + _dumped(value)
    members = _members(value)
    if not members or (not top and len(whole) < COLUMNS):  # leave a column for a comma
        yield whole
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield indent + key + opening
    listed = isinstance(value, list) and any(isinstance(one, dict) for one in value)
    line = ""  # short members that share one line
    for number, (name, member) in enumerate(members, 1):
        *before, last = _lines(member, indent + " ", name)
        last += "," if number < len(members) else ""
        short = not (before or listed) and len(last) - len(indent) <= SHORT
        if line and (not short or len(line) + len(last) - len(indent) > COLUMNS):
            yield line
            line = ""
        yield from before
        if short:
            line = f"{line} {last.strip()}" if line else last
        else:
            yield last
    if line:
        yield line
    yield indent + closing


def _members(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a list or an object, each with its key's text."""
    if isinstance(value, dict):
        return [(f"{_dumped(name)}: ", member) for name, member in value.items()]
    return [("", member) for member in value] if isinstance(value, list) else []


def files() -> list[Path]:
    """Return all files that must have the compact form."""
    return sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}*.json"))


def in_another_form() -> list[tuple[Path, str]]:
    """Return the files that aren't in the compact form, each with its text in that form."""
    texts = ((path, compact(json.loads(path.read_text()))) for path in files())
    return [(path, text) for path, text in texts if path.read_text() != text]


def main() -> None:
    """Rewrite the files or, with --check, list those in another form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, name the files")
    check = parser.parse_args().check
    others = in_another_form()
    for path, text in others:
        print(path.relative_to(ROOT))
        if not check:
            path.write_text(text)
    sys.exit(1 if check and others else 0)


if __name__ == "__main__":
    main()
