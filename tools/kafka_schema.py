"""Read Kafka's message definitions into Python values, for the protocol generator.

In: the `kafka-clients` jar, whose `common/message/*.json` (Apache-2.0) describe every request and
response. Out: `Message`, `Struct` and `Field` values, restricted to the versions that are
generated. Must not: contain code generation, which is in `generate_protocol`.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNBOUNDED = 32767
FIXED = {  # Kafka type → code of the `struct` module, bytes on the wire
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
NUMBERS = frozenset(FIXED) - {"bool", "uuid"}


def snake(name: str) -> str:
    """Convert `ThrottleTimeMs` to `throttle_time_ms`."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, which includes both ends; it is empty when `low > high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse a range in Kafka's notation: `3+`, `0-4`, `7` or `none`."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), UNBOUNDED)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def clip(self, other: Versions) -> Versions:
        """Return the versions that are in both ranges."""
        return Versions(max(self.low, other.low), min(self.high, other.high))

    @property
    def empty(self) -> bool:
        """Whether no version is in the range."""
        return self.low > self.high


@dataclass(slots=True)
class Struct:
    """A group of fields: a message's top level, or an element type that the message contains."""

    name: str
    fields: list[Field]
    versions: Versions
    python: str = ""
    """Class name, unique in its module; set when the module is generated."""

    def nested(self) -> list[Struct]:
        """Return the structs that this struct contains, innermost first, each once."""
        found: list[Struct] = []
        for item in self.fields:
            if item.struct is not None:
                for struct in [*item.struct.nested(), item.struct]:
                    if not any(struct is known for known in found):
                        found.append(struct)
        return found


@dataclass(slots=True)
class Field:
    """One field of a struct, with the versions that contain it."""

    name: str
    type: str
    array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    ignorable: bool
    default: Any

    @property
    def python(self) -> str:
        """Name of the Python attribute."""
        return snake(self.name)


@dataclass(slots=True)
class Message:
    """Definition of a request or a response."""

    api_key: int
    kind: str
    top: Struct
    versions: Versions
    flexible: Versions


def load_json(text: str) -> dict[str, Any]:
    """Parse JSON with // comments on separate lines, as in Kafka's definitions."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    loaded: dict[str, Any] = json.loads("\n".join(lines))
    return loaded


def _field(source: dict[str, Any], valid: Versions, common: _CommonStructs) -> Field | None:
    versions = Versions.parse(source["versions"]).clip(valid)
    if versions.empty:
        return None
    if "flexibleVersions" in source:
        raise ValueError(f"{source['name']}: flexibleVersions of a single field")
    kind = str(source["type"])
    array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = None
    if kind[0].isupper():
        if "fields" in source:
            struct = _struct(kind, source["fields"], versions, common)
        else:
            struct = common[kind]
    return Field(
        name=source["name"],
        type=kind,
        array=array,
        struct=struct,
        versions=versions,
        nullable=Versions.parse(source.get("nullableVersions", "none")).clip(valid),
        tagged=Versions.parse(source.get("taggedVersions", "none")).clip(valid),
        tag=source.get("tag"),
        ignorable=bool(source.get("ignorable", False)),
        default=_default(kind, array, source.get("default")),
    )


def _default(kind: str, array: bool, given: Any) -> Any:
    """Return Kafka's default as a Python value: `[]` for arrays, the type's name for structs."""
    if given in ("null", None) and (given == "null" or kind == "records"):
        return None
    if array:
        return []
    if kind == "string":
        return given or ""
    if kind in ("bytes", "uuid"):
        return b"" if kind == "bytes" else bytes(16)
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "float64":
        return float(given or 0)
    if kind in FIXED:
        return int(str(given or 0), 0)
    return kind


def _struct(
    name: str, fields: list[dict[str, Any]], valid: Versions, common: _CommonStructs
) -> Struct:
    made = [_field(source, valid, common) for source in fields]
    return Struct(name, [item for item in made if item is not None], valid)


class _CommonStructs:
    """Structs that a message uses in several places, built when they are first used."""

    def __init__(self, sources: list[dict[str, Any]], valid: Versions) -> None:
        self.sources = {source["name"]: source["fields"] for source in sources}
        self.valid = valid
        self.made: dict[str, Struct] = {}

    def __getitem__(self, name: str) -> Struct:
        if name not in self.made:
            self.made[name] = _struct(name, self.sources[name], self.valid, self)
        return self.made[name]


def parse_message(source: dict[str, Any], *, drop_newest: bool = False) -> Message:
    """Build a message from its definition; `drop_newest` omits a version marked as unstable."""
    versions = Versions.parse(source["validVersions"])
    if drop_newest:
        versions = Versions(versions.low, versions.high - 1)
    common = _CommonStructs(source.get("commonStructs", []), versions)
    return Message(
        api_key=source["apiKey"],
        kind=source["type"],
        top=_struct(source["name"], source["fields"], versions, common),
        versions=versions,
        flexible=Versions.parse(source["flexibleVersions"]),
    )


def read_definitions(jar: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the jar's Kafka version and the definitions of requests and responses by name."""
    found: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(jar) as archive:
        properties = archive.read("kafka/kafka-version.properties").decode()
        version = dict(line.split("=", 1) for line in properties.splitlines() if "=" in line)[
            "version"
        ].strip()
        for name in sorted(archive.namelist()):
            if name.startswith("common/message/") and name.endswith(".json"):
                loaded = load_json(archive.read(name).decode())
                if loaded["type"] in ("request", "response"):
                    found[loaded["name"]] = loaded
    return version, found


def smallest_element(message: Message, item: Field, version: int) -> int:
    """Return the minimum size in bytes of one element of an array."""
    size = (
        _smallest_struct(message, item.struct, version)
        if item.struct
        else _width(item.type, version in message.flexible)
    )
    if size < 1:
        raise ValueError(f"{item.name}: elements of no bytes")
    return size


def _width(kind: str, flexible: bool) -> int:
    if kind in FIXED:
        return FIXED[kind][1]
    return 1 if flexible else 2 if kind == "string" else 4


def _smallest_struct(message: Message, struct: Struct, version: int) -> int:
    flexible = version in message.flexible
    size = int(flexible)
    for item in struct.fields:
        if version not in item.versions or version in item.tagged:
            continue
        if item.array:
            size += 1 if flexible else 4
        elif item.struct:
            nullable = version in item.nullable
            size += 1 if nullable else _smallest_struct(message, item.struct, version)
        else:
            size += _width(item.type, flexible)
    return size
