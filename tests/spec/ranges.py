"""Expand the short forms for numbered names in case files.

In a list, "b[1..3]:9092" means three strings, and "[1..3]" three numbers. As a key of an object it
means three keys; "#" in their values is each key's number. In a list of steps, an object with
`steps` repeats these steps `times` times: `every` seconds apart from `at` on, with "#" for `from`,
`from` + 1, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_RANGE = re.compile(r"(.*)\[(\d+)\.\.(\d+)\](.*)")


def expand(value: Any) -> Any:
    """Return the value with its short forms expanded."""
    if isinstance(value, dict):
        return {
            name: expand(numbered(one, n) if n is not None else one)
            for key, one in value.items()
            for name, n in _names(key)
        }
    if isinstance(value, list):
        return [one for item in value for one in _items(item)]
    return value


def _items(item: Any) -> Iterator[Any]:
    """Yield the items that one item of a list expands to."""
    if isinstance(item, dict) and {"times", "steps"} <= item.keys():
        for n in range(item["times"]):
            for step in item["steps"]:
                at = round(item["at"] + n * item["every"], 6)
                yield {"at": at, **expand(numbered(step, item.get("from", 0) + n))}
    elif isinstance(item, str):
        for name, _ in _names(item):
            yield int(name) if name.isdecimal() and name != item else name
    else:
        yield expand(item)


def _names(text: str) -> Iterator[tuple[str, int | None]]:
    """Yield the strings that a text expands to, each with its number if it is a range."""
    found = _RANGE.fullmatch(text)
    if found is None:
        yield text, None
        return
    before, first, last, after = found.groups()
    for n in range(int(first), int(last) + 1):
        yield f"{before}{n}{after}", n


def numbered(value: Any, n: int, sign: str = "#") -> Any:
    """Replace the sign with the number; a text that is only the sign becomes an integer."""
    if isinstance(value, str):
        return n if value == sign else value.replace(sign, str(n))
    if isinstance(value, dict):
        return {k.replace(sign, str(n)): numbered(v, n, sign) for k, v in value.items()}
    return [numbered(one, n, sign) for one in value] if isinstance(value, list) else value
