"""Packages that a format needs.

In: a format. Out: the module, or `MissingExtraError` with the line to type. Must not: be called
before a format is asked for.
"""

from __future__ import annotations

from typing import Any

from odradek.common.extras import require_extra


def fastavro() -> Any:
    """Avro's codec."""
    require_extra("fastavro")
    import fastavro as found

    return found


def jsonschema_rs() -> Any:
    """The validator of JSON Schema."""
    require_extra("jsonschema_rs")
    import jsonschema_rs as found

    return found


def protobuf() -> Any:
    """Protobuf's own package."""
    require_extra("google.protobuf.descriptor")
    from google.protobuf import descriptor as found

    return found
