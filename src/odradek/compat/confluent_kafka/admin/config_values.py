"""confluent-kafka's configuration entries and resources.

In: values, or Odradek's entries. Out: objects; a resource is compared and hashed by kind and name.
Must not: know what an option means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import total_ordering
from typing import Any, TypeAlias

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import (
    AlterConfigOpType,
    ConfigSource,
    ResourceType,
)
from odradek.compat.confluent_kafka.kafka_error import KafkaError

_SOURCES = {
    **{source.name: source for source in ConfigSource},
    "DYNAMIC_GROUP_CONFIG": ConfigSource.GROUP_CONFIG,
}


class ConfigEntry:
    """Configuration entry; `value` is None for a secret.

    `source` is a `ConfigSource`, or its number in results of `describe_configs()`, as in
    confluent-kafka.
    """

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: dict[str, ConfigEntry] | None = None,
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.is_read_only = bool(is_read_only)
        self.is_default = bool(is_default)
        self.is_sensitive = bool(is_sensitive)
        self.is_synonym = bool(is_synonym)
        self.synonyms = {} if synonyms is None else synonyms
        self.incremental_operation = incremental_operation

    def __repr__(self) -> str:
        return f'ConfigEntry({self.name}="{self.value}")'

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


@total_ordering
class ConfigResource:
    """Topic, broker (`name` is the broker's id) or group, with changes of its options."""

    Type: TypeAlias = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: dict[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("Expected resource name to be a string")
        if isinstance(restype, str):
            if restype.upper() not in ResourceType.__members__:
                raise ValueError(
                    f'Unknown resource type "{restype}": should be a ConfigResource.Type'
                )
            restype = ResourceType[restype.upper()]
        self.restype = ResourceType(restype)
        self.restype_int = int(self.restype.value)
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs: list[ConfigEntry] = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set an option for `alter_configs()`; `overwrite=False` keeps a value set before.

        `alter_configs()` resets all other options to their defaults.
        """
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change for `incremental_alter_configs()`, with its `incremental_operation`."""
        self.incremental_configs.append(config_entry)

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return self.restype < other.restype or self.name < other.name


def our_resource(resource: ConfigResource) -> odradek.admin.ConfigResource:
    """Convert a resource for Odradek's admin client."""
    return odradek.admin.ConfigResource(resource.restype.name, resource.name)


def entries_of(found: dict[str, odradek.admin.ConfigEntry]) -> dict[str, ConfigEntry]:
    """Convert a resource's options to confluent-kafka's entries, by name."""
    return {name: _entry(entry) for name, entry in found.items()}


def _entry(found: odradek.admin.ConfigEntry) -> ConfigEntry:
    return ConfigEntry(
        found.name,
        found.value,
        _number(found.source),
        is_read_only=found.read_only,
        is_default=found.default,
        is_sensitive=found.sensitive,
        synonyms={
            s.name: ConfigEntry(s.name, s.value, _number(s.source), is_synonym=True)
            for s in found.synonyms
        },
    )


def _number(source: str) -> int:
    member = _SOURCES.get(source, ConfigSource.UNKNOWN_CONFIG)
    return int(member.value)


def our_changes(entries: Sequence[Any]) -> list[odradek.admin.AlterConfigOp]:
    """Convert changes for Odradek's admin client; raises `TypeError` and `ValueError`."""
    if not entries:
        raise ValueError("expected non-empty list of ConfigEntry to alter incrementally")
    found = []
    for entry in entries:
        if not isinstance(entry, ConfigEntry):
            raise TypeError(f"expected ConfigEntry type, got {type(entry).__name__}")
        operation = entry.incremental_operation
        if not isinstance(operation, AlterConfigOpType):
            raise TypeError(
                f"expected an AlterConfigOpType in incremental_operation of {entry.name}"
            )
        if not isinstance(entry.name, str):
            raise TypeError(f"Expected .name to be str type, not {type(entry.name).__name__}")
        value = None if operation is AlterConfigOpType.DELETE else entry.value
        if operation is not AlterConfigOpType.DELETE and not isinstance(value, str):
            raise TypeError(f"Expected .value to be str type, not {type(value).__name__}")
        found.append(odradek.admin.AlterConfigOp(entry.name, value, operation.name))
    return found


def set_values(resource: ConfigResource) -> dict[str, str]:
    """Return the values for `alter_configs()`, numbers as text, as in confluent-kafka."""
    return {name: str(value) for name, value in resource.set_config_dict.items()}
