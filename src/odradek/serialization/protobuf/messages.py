"""Find the message of a Protobuf schema by its indexes.

In: a registered schema, a `.proto` file or its descriptor in base64, and indexes. Out: full names.
Must not: compile a file: names and nesting can be read from its tokens.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from odradek.serialization.errors import InvalidSchemaError
from odradek.serialization.extras import protobuf
from odradek.serialization.registry.schemas import PROTOBUF, Schema

_WORDS = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)|'(?:\\.|[^'\\])*(?:'|\\?\Z)"""
    r"""|[\w.]+|[^\s\w]""",
    re.DOTALL,
)
"""Matches a token. A comment or string without an end extends to the end of the text, so the search
takes linear time."""


@dataclass(slots=True)
class _Message:
    """A message or a file: its name, and the messages that are declared in it."""

    name: str
    within: list[_Message] = field(default_factory=list)
    entry: bool = False
    """Whether the message represents a map's entries, which some implementations don't count."""


def messages_at(schema: Schema, indexes: tuple[int, ...]) -> set[str]:
    """Return the full names of the message with these indexes; empty if there is none.

    There are two names if the result depends on whether map entries are counted. An entry itself is
    never the message of a record. Raises `InvalidSchemaError`.
    """
    if schema.schema_type != PROTOBUF:
        raise InvalidSchemaError(
            f"the schema has type {schema.schema_type}, not PROTOBUF", None, "Check the topic."
        )
    file = _file(schema.schema_str)
    found = (_at(file, indexes, entries=True), _at(file, indexes, entries=False))
    return {one for one in found if one}


@lru_cache(maxsize=256)
def _file(text: str) -> _Message:
    """Parse a schema; the cache helps if many records of a large schema have different indexes."""
    return _described(text) or _worded(text)


def _at(file: _Message, indexes: tuple[int, ...], *, entries: bool) -> str | None:
    names, here = [file.name] if file.name else [], file
    for index in indexes:
        within = [one for one in here.within if entries or not one.entry]
        if not 0 <= index < len(within):
            return None
        here = within[index]
        names.append(here.name)
    return None if here.entry else ".".join(names)


def _described(text: str) -> _Message | None:
    """Parse a file descriptor in base64; return None for other texts."""
    protobuf()
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None

    def message(one: Any) -> _Message:
        return _Message(one.name, [message(each) for each in one.nested_type], _is_entry(one))

    return _Message(file.package, [message(one) for one in file.message_type])


def _is_entry(message: Any) -> bool:
    return bool(message.options.map_entry)


def _worded(text: str) -> _Message:
    """Find the messages of a `.proto` file by the words `package`, `message`, `map` and `group`.

    Maps and groups count as messages, as in a descriptor, in the order of the file.
    """
    words = [one for one in _WORDS.findall(text) if not one.startswith(("//", "/*"))]
    file = _Message("")
    open_ones = [file]  # the enclosing message of each open brace
    group: _Message | None = None  # a group whose opening brace hasn't been reached
    at = 0
    while at < len(words):
        word, next_one, third = (*words[at : at + 3], "", "")[:3]
        here = open_ones[-1]
        if word == "package" and third == ";" and len(open_ones) == 1:
            file.name, at = next_one, at + 2
        elif word == "message" and third == "{":
            found = _Message(next_one)
            here.within.append(found)
            open_ones.append(found)
            at += 2
        elif word == "map" and next_one == "<" and words[at + 7 : at + 8] == ["="]:
            here.within.append(_Message(_entry_name(words[at + 6]), entry=True))
            at += 7
        elif word == "group" and third == "=":
            group = _Message(next_one)
            here.within.append(group)
            at += 2
        elif word == "{":
            open_ones.append(group or here)
            group = None
        elif word == "}" and len(open_ones) > 1:
            open_ones.pop()
        at += 1
    return file


def _entry_name(field_name: str) -> str:
    """Return the name of a map field's message, as protoc derives it."""
    return "".join(one[:1].upper() + one[1:] for one in field_name.split("_")) + "Entry"
