"""confluent-kafka's calls for configurations of topics, brokers and groups.

In: resources with changes. Out: futures by resource. Must not: know what an option means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.config_values import (
    ConfigEntry,
    ConfigResource,
    entries_of,
    our_changes,
    our_resource,
    set_values,
)
from odradek.compat.confluent_kafka.admin.enumerations import ResourceType
from odradek.compat.confluent_kafka.admin.futures import AdminCalls, Left
from odradek.compat.confluent_kafka.admin.topic_calls import once, some_of, truth

_OWN = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "BROKER": "DYNAMIC_BROKER_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG",
}
"""Config sources which mean that an option was set for the resource itself, by resource type."""


class ConfigCalls(AdminCalls):
    """Base class of `AdminClient`: calls for configurations."""

    def describe_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Describe the options of topics, brokers and groups by name; returns a future for each.

        `broker` has no effect: the client chooses a broker that can answer the request.
        """
        return self._each(
            _resources(resources),
            self._seconds(request_timeout),
            lambda admin, left, these: admin.describe_configs(these, left(), include_synonyms=True),
            ours=_legal,
            made=lambda _, found: entries_of(found),
        )

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[None]]:
        """Change the options in each resource's `incremental_configs`, and keep the others."""
        if not isinstance(resources, list):
            raise TypeError("Expected list of ConfigResource objects")
        changes = {
            our_resource(r): our_changes(r.incremental_configs) for r in _resources(resources)
        }
        only_checked = truth("validate_only", validate_only)
        return self._each(
            resources,
            self._seconds(request_timeout),
            lambda admin, left, these: admin.incremental_alter_configs(
                {at: changes[at] for at in these}, left(), validate_only=only_checked
            ),
            ours=lambda resource: _legal(once(resource, resources)),
        )

    def alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[None]]:
        """Set the options in each resource's `set_config`, and reset all others that were set.

        Looks up the options that are set first, so the change isn't atomic: an option that another
        client sets meanwhile isn't reset.
        """
        warnings.warn(
            "alter_configs has been deprecated. Use incremental_alter_configs instead.",
            category=DeprecationWarning,
            stacklevel=2,
        )
        values = {our_resource(r): set_values(r) for r in _resources(resources)}
        only_checked = truth("validate_only", validate_only)

        def alter(admin: odradek.Admin, left: Left, these: list[Any]) -> None:
            found, errors = _both(lambda: admin.describe_configs(these, left()))
            changes = {at: _replacing(values[at], entries, at) for at, entries in found.items()}
            wanted = {at: ops for at, ops in changes.items() if ops}
            if wanted:
                change = partial(admin.incremental_alter_configs, wanted, left())
                errors.update(_both(lambda: change(validate_only=only_checked))[1])
            for first in errors.values():
                raise first.beside({at: None for at in these if at not in errors}, errors)

        return self._each(
            resources,
            self._seconds(request_timeout),
            alter,
            ours=lambda resource: _legal(once(resource, resources)),
        )


def _both(call: Callable[[], Mapping[Any, Any] | None]) -> tuple[Mapping[Any, Any], dict[Any, Any]]:
    """Make a call for several items; return results by item, and errors of failed items."""
    try:
        return call() or {}, {}
    except odradek.KafkaError as error:
        if not error.errors:
            raise
        return error.results, dict(error.errors)


def _replacing(
    values: dict[str, str],
    entries: dict[str, odradek.admin.ConfigEntry],
    at: odradek.admin.ConfigResource,
) -> list[odradek.admin.AlterConfigOp]:
    """Return the changes after which exactly these options are set for the resource."""
    kept = [odradek.admin.AlterConfigOp(name, value) for name, value in values.items()]
    return kept + [
        odradek.admin.AlterConfigOp(name, None, "DELETE")
        for name, entry in entries.items()
        if entry.source == _OWN[at.type] and name not in values
    ]


def _legal(resource: ConfigResource) -> odradek.admin.ConfigResource:
    """Return the resource if it is of a type with options; otherwise raise a broker's error."""
    if resource.restype.name not in _OWN or (
        resource.restype is ResourceType.BROKER and not resource.name.isdecimal()
    ):
        raise odradek.errors.InvalidRequestError(
            f"{resource} has no options: use the broker's id as its name"
        )
    return our_resource(resource)


def _resources(given: Any) -> list[ConfigResource]:
    for resource in (found := some_of(given, ConfigResource)):
        if not resource.name:
            raise ValueError(f"Invalid ConfigResource({resource.restype_int},{resource.name})")
    return found
