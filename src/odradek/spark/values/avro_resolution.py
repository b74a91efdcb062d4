"""Check whether values of one Avro schema can be read as another.

In: two schemas in the plain form of `avro_schema`. Out: why they can't, as text; None if they can.
Must not: read values: a union's branch or an enum's symbol that the reader lacks is found where it
occurs.
"""

from __future__ import annotations

from typing import Any

from odradek.spark.values.avro_schema import BRANCH

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def clash(writer: Any, reader: Any, where: str = "the record") -> str | None:
    """Return the reason why no value of `writer` can be read as `reader`; None if some can."""
    if isinstance(writer, list) or isinstance(reader, list):
        pairs = [(w, r) for w in _branches(writer) for r in _branches(reader)]
        found = [clash(w, r, where) for w, r in pairs]
        return found[0] if None not in found else None
    kind, wanted = _kind(writer), _kind(reader)
    if kind != wanted:
        if wanted in _WIDER.get(kind, ()):
            return None
        return f"{where} was written as {_shown(writer)}, which can't be read as {_shown(reader)}"
    if kind == "array":
        return clash(writer["items"], reader["items"], where)
    if kind in ("record", "enum", "fixed") and not _same_name(writer, reader):
        names = (each["name"].rpartition(".")[2] for each in (writer, reader))
        return f"{where} has the types {' and '.join(names)}, and neither is an alias of the other"
    if kind == "fixed" and writer["size"] != reader["size"]:
        return f"{where} was written with {writer['size']} bytes, not {reader['size']}"
    return _in_record(writer, reader) if kind == "record" else None


def _in_record(writer: dict[str, Any], reader: dict[str, Any]) -> str | None:
    written = {field["name"]: field for field in writer["fields"]}
    for field in reader["fields"]:
        names = (field["name"], *field.get("aliases", ()))
        there = next((written[name] for name in names if name in written), None)
        if there is not None:
            found = clash(there["type"], field["type"], f"field {field['name']}")
            if found:
                return found
        elif "default" not in field:
            return f"field {field['name']} is missing in the writer schema and has no default"
    return None


def _branches(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _kind(schema: Any) -> str:
    return str(schema if isinstance(schema, str) else schema["type"])


def _shown(schema: Any) -> str:
    is_branch = _kind(schema) == "record" and schema["name"].rpartition(".")[2].startswith(BRANCH)
    return "a union of several types" if is_branch else _kind(schema)


def _same_name(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    own = writer["name"].rpartition(".")[2]
    return own == reader["name"].rpartition(".")[2] or own in reader.get("aliases", ())
