"""Short forms in case files for what comes in numbers, written out before anybody else reads them.

In a list, "b[1..3]:9092" stands for three texts, and "[1..3]" for three numbers. As an object's key
it stands for three keys; "#" in their values is each one's number. In a list of steps, an object
with `steps` stands for these, `times` over: `every` seconds apart from `at` on, with "#" for
`from`, `from` + 1, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_RANGE = re.compile(r"(.*)\[(\d+)\.\.(\d+)\](.*)")


def written_out(value: Any) -> Any:
    """The same without short forms."""
    if isinstance(value, dict):
        return {
            name: written_out(numbered(one, n) if n is not None else one)
            for key, one in value.items()
            for name, n in _names(key)
        }
    if isinstance(value, list):
        return [one for item in value for one in _items(item)]
    return value


def _items(item: Any) -> Iterator[Any]:
    """What one item of a list stands for."""
    if isinstance(item, dict) and {"times", "steps"} <= item.keys():
        for n in range(item["times"]):
            for step in item["steps"]:
                at = round(item["at"] + n * item["every"], 6)
                yield {"at": at, **written_out(numbered(step, item.get("from", 0) + n))}
    elif isinstance(item, str):
        for name, _ in _names(item):
            yield int(name) if name.isdecimal() and name != item else name
    else:
        yield written_out(item)


def _names(text: str) -> Iterator[tuple[str, int | None]]:
    """What a text stands for, with the number in it where it is a range."""
    found = _RANGE.fullmatch(text)
    if found is None:
        yield text, None
        return
    before, first, last, after = found.groups()
    for n in range(int(first), int(last) + 1):
        yield f"{before}{n}{after}", n


def numbered(value: Any, n: int, sign: str = "#") -> Any:
    """The same with the number for the sign: as a number where that is all of the text."""
    if isinstance(value, str):
        return n if value == sign else value.replace(sign, str(n))
    if isinstance(value, dict):
        return {k.replace(sign, str(n)): numbered(v, n, sign) for k, v in value.items()}
    return [numbered(one, n, sign) for one in value] if isinstance(value, list) else value
