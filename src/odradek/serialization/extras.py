"""Packages that a format needs.

In: a format. Out: the module, or `MissingExtraError` with the line to type. Must not: be called
before a format is asked for.
"""

from __future__ import annotations

from typing import Any

from odradek.common.extras import require_extra


def fastavro() -> Any:
    """Return the package fastavro. Raises `MissingExtraError`."""
    require_extra("fastavro")
    import fastavro as found

    return found


def jsonschema_rs() -> Any:
    """Return the package jsonschema_rs. Raises `MissingExtraError`."""
    require_extra("jsonschema_rs")
    import jsonschema_rs as found

    return found


def protobuf() -> Any:
    """Return the module `google.protobuf.descriptor`. Raises `MissingExtraError`."""
    require_extra("google.protobuf.descriptor")
    from google.protobuf import descriptor as found

    return found
