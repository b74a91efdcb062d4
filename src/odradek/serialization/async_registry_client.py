"""The registry's client for asyncio: `SchemaRegistryClient`, awaited.

In: as there. Out: the same, from a thread while the loop goes on. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from odradek.runtime.hosts.in_thread import in_thread
from odradek.serialization.registry_client import LATEST, SchemaRegistryClient
from odradek.serialization.registry_settings import with_secrets
from odradek.serialization.schemas import RegisteredSchema, Schema


class AsyncSchemaRegistryClient:
    """Asks a schema registry from an event loop; settings, answers and errors are the same.

    >>> registry = AsyncSchemaRegistryClient({"schema.registry.url": "http://localhost:8081"})
    >>> await registry.register_schema("flights-value", Schema('{"type": "string"}'))
    1
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check the settings; nothing is asked yet. Raises `ConfigurationError`."""
        config = with_secrets(config)  # first: the rest may raise
        self._client = SchemaRegistryClient(config)

    def __repr__(self) -> str:
        client = vars(self).get("_client", "<SchemaRegistryClient>")  # where settings are wrong
        return str(client).replace("<", "<Async", 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `SchemaRegistryClient.__exit__`."""

    async def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        """As `SchemaRegistryClient.get_schema`."""
        return await in_thread(self._client.get_schema, schema_id, fmt)

    async def get_schema_by_guid(self, guid: str) -> Schema:
        """As `SchemaRegistryClient.get_schema_by_guid`."""
        return await in_thread(self._client.get_schema_by_guid, guid)

    async def lookup_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """As `SchemaRegistryClient.lookup_schema`."""
        return await in_thread(self._client.lookup_schema, subject_name, schema, normalize_schemas)

    async def register_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> int:
        """As `SchemaRegistryClient.register_schema`."""
        return await in_thread(
            self._client.register_schema, subject_name, schema, normalize_schemas
        )

    async def registered_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """As `SchemaRegistryClient.registered_schema`."""
        return await in_thread(
            self._client.registered_schema, subject_name, schema, normalize_schemas
        )

    async def get_latest_version(self, subject_name: str) -> RegisteredSchema:
        """As `SchemaRegistryClient.get_latest_version`."""
        return await in_thread(self._client.get_latest_version, subject_name)

    async def get_version(self, subject_name: str, version: int | str = LATEST) -> RegisteredSchema:
        """As `SchemaRegistryClient.get_version`."""
        return await in_thread(self._client.get_version, subject_name, version)

    async def get_subjects(self) -> list[str]:
        """As `SchemaRegistryClient.get_subjects`."""
        return await in_thread(self._client.get_subjects)

    async def get_versions(self, subject_name: str) -> list[int]:
        """As `SchemaRegistryClient.get_versions`."""
        return await in_thread(self._client.get_versions, subject_name)

    async def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """As `SchemaRegistryClient.delete_subject`."""
        return await in_thread(self._client.delete_subject, subject_name, permanent)

    async def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """As `SchemaRegistryClient.delete_version`."""
        return await in_thread(self._client.delete_version, subject_name, version, permanent)

    async def test_compatibility(
        self, subject_name: str, schema: Schema, version: int | str = LATEST
    ) -> bool:
        """As `SchemaRegistryClient.test_compatibility`."""
        return await in_thread(self._client.test_compatibility, subject_name, schema, version)

    async def get_compatibility(self, subject_name: str | None = None) -> str:
        """As `SchemaRegistryClient.get_compatibility`."""
        return await in_thread(self._client.get_compatibility, subject_name)

    async def set_compatibility(self, level: str, subject_name: str | None = None) -> str:
        """As `SchemaRegistryClient.set_compatibility`."""
        return await in_thread(self._client.set_compatibility, level, subject_name)
