"""Fetch the schemas that a schema references, directly and indirectly.

In: a schema, a registry. Out: each referenced schema once, after those that it needs. Must not:
loop over schemas that reference each other, or follow references without end: a user who may
register schemas can write any references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.shared_deadline import share_deadline
from odradek.serialization.errors import InvalidSchemaError
from odradek.serialization.registry.schemas import RegisteredSchema, Schema, SchemaReference

if TYPE_CHECKING:
    from odradek.serialization.registry.client import SchemaRegistryClient

MOST_REFERENCES = 500
"""Maximum number of schemas that a schema references, directly and indirectly."""


def referred(
    schema: Schema, registry: SchemaRegistryClient
) -> list[tuple[SchemaReference, RegisteredSchema]]:
    """Return all schemas that a schema references, with the references; dependencies come first.

    All look-ups together share the time limit of one call. Raises `SchemaRegistryError`, and
    `InvalidSchemaError` for more than `MOST_REFERENCES`.
    """
    with share_deadline():
        return _referred(schema, registry)


def _referred(
    schema: Schema, registry: SchemaRegistryClient
) -> list[tuple[SchemaReference, RegisteredSchema]]:
    found: list[tuple[SchemaReference, RegisteredSchema]] = []
    met: set[SchemaReference] = set()
    open_ones: list[tuple[SchemaReference, RegisteredSchema]] = []
    rests = [iter(schema.references)]
    while rests:
        inner = next(rests[-1], None)
        if inner is None:
            rests.pop()
            if open_ones:
                found.append(open_ones.pop())
        elif inner not in met:
            met.add(inner)
            if len(met) > MOST_REFERENCES:
                raise InvalidSchemaError(
                    f"the schema needs more than {MOST_REFERENCES} other schemas",
                    None,
                    "Combine some of the schemas.",
                )
            needed = registry.get_version(inner.subject, inner.version)
            open_ones.append((inner, needed))
            rests.append(iter(needed.schema.references))
    return found
