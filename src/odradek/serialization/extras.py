"""Packages that a format needs, and the line to type where one isn't there.

In: a format. Out: the module, or `MissingExtraError`. Must not: be called before a format is asked
for.
"""

from __future__ import annotations

from typing import Any

from odradek.serialization.errors import MissingExtraError


def fastavro() -> Any:
    """Avro's codec."""
    try:
        import fastavro as found
    except ImportError:
        raise _missing("fastavro", "Avro") from None
    return found


def jsonschema_rs() -> Any:
    """The validator of JSON Schema."""
    try:
        import jsonschema_rs as found
    except ImportError:
        raise _missing("jsonschema-rs", "JSON Schema") from None
    return found


def protobuf() -> Any:
    """Protobuf's own package."""
    try:
        from google.protobuf import descriptor as found
    except ImportError:
        raise _missing("protobuf", "Protobuf") from None
    return found


def _missing(package: str, kind: str) -> MissingExtraError:
    return MissingExtraError(f"{kind} needs the package {package}: pip install 'odradek[schemas]'")
