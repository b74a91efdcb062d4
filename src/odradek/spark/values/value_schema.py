"""Parse the schema of decoded values into Spark's type.

In: DDL (`id bigint, tags array<string>`) or the JSON of `StructType.json()`. Out: a `StructType`,
all fields nullable. Must not: ask Spark to parse it: planners and tasks have no session.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn

from odradek.spark.checkpoint_errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

OPTION = "valueSchema"
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_][\w$-]*|[<>,:()]|\S)")
_SIMPLE = {
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "byte": "ByteType",
    "smallint": "ShortType",
    "short": "ShortType",
    "int": "IntegerType",
    "integer": "IntegerType",
    "bigint": "LongType",
    "long": "LongType",
    "float": "FloatType",
    "real": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ltz": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
}
"""Spark's names of the simple types that can be decoded; structs and arrays contain others."""


def value_schema(text: str) -> StructType:
    """Return the type in the text of option valueSchema."""
    from pyspark.sql import types as t

    text = text.strip()
    if text.startswith("{"):
        try:
            found = t.StructType.fromJson(json.loads(text))
        except Exception as error:  # pyspark may raise any error while parsing
            raise OptionError(
                f"option {OPTION} looks like JSON, but isn't the JSON of StructType.json(): {error}"
            ) from None
    else:
        found = _Ddl(text).whole()
    return t.StructType([t.StructField(f.name, _checked(f.dataType, f.name)) for f in found])


def _checked(kind: DataType, where: str) -> DataType:
    """Return the type with all fields and items nullable; raise if it can't be decoded."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return t.StructType(
            [t.StructField(f.name, _checked(f.dataType, f"{where}.{f.name}")) for f in kind]
        )
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_checked(kind.elementType, where))
    if type(kind).__name__ not in _SIMPLE.values():
        raise OptionError(
            f"option {OPTION}: field {where} has the unsupported type {kind.simpleString()}; use "
            f"{', '.join(dict.fromkeys(_SIMPLE))}, array<…> or struct<…>"
        )
    return kind


class _Ddl:
    """Parser of fields in Spark's DDL syntax, as far as decoded values need it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def whole(self) -> StructType:
        """Read the whole text."""
        # schema_of_json and printed types wrap the fields
        wrapped = [token.lower() for token in self._tokens[:2]] == ["struct", "<"]
        found = self._type() if wrapped else self._fields("")
        if self._at < len(self._tokens):
            self._fail("the end")
        from pyspark.sql.types import StructType

        assert isinstance(found, StructType)  # noqa: S101 (for the type checker)
        return found

    def _fields(self, end: str) -> StructType:
        from pyspark.sql import types as t

        fields: list[t.StructField] = []
        while True:
            name = self._name()
            self._take(":")
            kind = self._type()
            if self._take("not") and not self._take("null"):
                self._fail("NULL")
            if any(f.name == name for f in fields):
                raise OptionError(f"option {OPTION}: field {name} occurs twice")
            fields.append(t.StructField(name, kind))
            if not self._take(","):
                break
        if end and not self._take(end):
            self._fail(end)
        return t.StructType(fields)

    def _type(self) -> DataType:
        from pyspark.sql import types as t

        word = self._peek().lower()
        if word in ("array", "struct"):
            self._at += 1
            if not self._take("<"):
                self._fail("<")
            if word == "struct":
                return self._fields(">")
            inner = self._type()
            if not self._take(">"):
                self._fail(">")
            return t.ArrayType(inner)
        if word not in _SIMPLE:
            self._fail(f"a type ({', '.join(dict.fromkeys(_SIMPLE))}, array<…> or struct<…>)")
        self._at += 1
        made: DataType = getattr(t, _SIMPLE[word])()
        return made

    def _name(self) -> str:
        token = self._peek()
        if token.startswith("`"):
            self._at += 1
            return token[1:-1].replace("``", "`")
        if not (token[:1].isalpha() or token[:1] == "_"):
            self._fail("a field name")
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str) -> bool:
        if self._peek().lower() != wanted:
            return False
        self._at += 1
        return True

    def _fail(self, wanted: str) -> NoReturn:
        before = " ".join(self._tokens[: self._at][-6:])
        found = repr(self._peek()) if self._peek() else "the end"
        raise OptionError(
            f"option {OPTION}: expected {wanted} after {before!r}, not {found}. Write it as in "
            "CREATE TABLE, like id bigint, tags array<string>"
        )
