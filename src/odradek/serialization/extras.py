"""Packages that a format needs.

In: a format. Out: the module, or `MissingExtraError` with the line to type. Must not: be called
before a format is asked for.
"""

from __future__ import annotations

from typing import Any

from odradek.common.imports import loaded


def fastavro() -> Any:
    """Avro's codec."""
    loaded("fastavro")
    import fastavro as found

    return found


def jsonschema_rs() -> Any:
    """The validator of JSON Schema."""
    loaded("jsonschema_rs")
    import jsonschema_rs as found

    return found


def protobuf() -> Any:
    """Protobuf's own package."""
    loaded("google.protobuf.descriptor")
    from google.protobuf import descriptor as found

    return found
