"""Reject schemas with data rules, which Odradek can't execute.

In: schemas with their rule sets (Confluent's data contracts). Out: `InvalidSchemaError` if a rule
applies to the operation. Must not: execute a rule, or ignore one: a field that has to be encrypted
would be sent unencrypted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from odradek.serialization.errors import InvalidSchemaError

if TYPE_CHECKING:
    from odradek.serialization.registry.schemas import Schema

WRITE, READ, UPGRADE, DOWNGRADE = "WRITE", "READ", "UPGRADE", "DOWNGRADE"
_BOTH = {WRITE: "WRITEREAD", READ: "WRITEREAD", UPGRADE: "UPDOWN", DOWNGRADE: "UPDOWN"}
_ENABLED = (None, "ALL", "CLIENT")
"""Values of `enableAt` with which clients execute the rules."""


def check_rules(schema: Schema, mode: str) -> None:
    """Raise `InvalidSchemaError` if a rule of the schema applies to the operation `mode`."""
    if schema.rule_set is None:
        return
    rule = _applies(schema.rule_set, mode)
    if rule is not None:
        refused = InvalidSchemaError(
            f"no executor for rule {rule}, which the schema requires",
            None,
            "Use a client with data rules for this schema, or disable the rule in the registry.",
        )
        refused.blames_record = False  # otherwise the schema's records would be skipped
        raise refused


def check_migration(written: Schema, wanted: Schema) -> None:
    """Raise `InvalidSchemaError` if reading one schema as the other requires migration rules."""
    if written.schema_str != wanted.schema_str:
        check_rules(wanted, UPGRADE)
        check_rules(written, DOWNGRADE)


@lru_cache(maxsize=256)
def _applies(rule_set: str, mode: str) -> str | None:
    """Return the name and type of the first rule that applies to an operation, or None."""
    found: Any = json.loads(rule_set)
    if found.get("enableAt") not in _ENABLED:
        return None
    modes = (mode, _BOTH[mode])
    names = (
        ("migrationRules",) if mode in (UPGRADE, DOWNGRADE) else ("domainRules", "encodingRules")
    )
    for rule in _rules(found, names):
        # A rule without a known mode may apply to any operation.
        known = rule.get("mode") in (*_BOTH, *_BOTH.values())
        if rule.get("disabled") is True or (known and rule["mode"] not in modes):
            continue
        failure = str(rule.get("onFailure") or "").split(",")
        action = failure[-1 if mode in (READ, DOWNGRADE) else 0]
        if action != "NONE":  # with NONE, failures of the rule are ignored
            return f"{rule.get('name')!r} of type {rule.get('type')}"
    return None


def _rules(found: dict[str, Any], names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for name in names:
        listed = found.get(name)
        for rule in listed if isinstance(listed, list) else ():
            yield rule if isinstance(rule, dict) else {}
