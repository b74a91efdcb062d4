"""Stored cases: each case that once failed is tried in every run.

There is a file per target with a line per case, as JSON with buffers in hex. `python -m
tests.fuzz.targets TARGET --seed CHUNK --only INDEX --save "description"` adds one.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import sent

from odradek.record import limits, sent_columns

FOLDER = Path(__file__).parent / "corpus"
_CLASSES = {
    found.__name__: found
    for found in (
        limits.Limits,
        sent.Case,
        sent_columns.SentBinary,
        sent_columns.SentColumns,
        sent_columns.SentHeaders,
        sent_columns.SentNumbers,
    )
}


def pack(value: Any) -> Any:
    """Convert a value to JSON."""
    if hasattr(value, "_fields"):
        content = {name: pack(getattr(value, name)) for name in value._fields}
        return {"class": type(value).__name__, **content}
    if is_dataclass(value):
        content = {field.name: pack(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **content}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, dict):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item) for item in value]
    return value


def unpack(value: Any) -> Any:
    """Convert JSON back to the value, with buffers of exactly their size."""
    if isinstance(value, dict) and "hex" in value:
        return sent.exact(bytes.fromhex(value["hex"]))
    if isinstance(value, dict) and "class" in value:
        content = {key: unpack(item) for key, item in value.items() if key != "class"}
        return _CLASSES[value["class"]](**content)
    if isinstance(value, dict):
        return {key: unpack(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(unpack(item) for item in value)
    return value


def write_case(target: str, case: Any, about: str) -> None:
    """Add a case to those of a target."""
    path = FOLDER / f"{target}.json"
    known = json.loads(path.read_text()) if path.exists() else []
    known.append({"about": about, "case": pack(case)})
    path.write_text("[\n" + ",\n".join(json.dumps(one) for one in known) + "\n]\n")


def cases(target: str) -> list[tuple[str, Any]]:
    """Return a target's stored cases: descriptions, and pairs (buffer, arguments) or `Case`s."""
    known = json.loads((FOLDER / f"{target}.json").read_text())
    return [(one["about"], unpack(one["case"])) for one in known]
