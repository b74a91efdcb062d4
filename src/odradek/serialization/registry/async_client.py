"""Client of a schema registry for asyncio.

In: arguments for `SchemaRegistryClient`. Out: its results, from calls in a thread. Must not: add
behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from odradek.common.secret import private
from odradek.runtime.hosts.in_thread import in_thread
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.settings import with_secrets

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[SchemaRegistryClient, P], T],
) -> Callable[Concatenate[AsyncSchemaRegistryClient, P], Coroutine[Any, Any, T]]:
    """Return the coroutine method that calls a method of the client in a thread."""

    @wraps(method, assigned=("__module__", "__name__", "__doc__"))
    async def called(self: AsyncSchemaRegistryClient, /, *args: P.args, **keywords: P.kwargs) -> T:
        call = getattr(self._client, method.__name__)
        found: T = await in_thread(call, *args, **keywords)
        return found

    return called


class AsyncSchemaRegistryClient:
    """A client of a schema registry for asyncio.

    Methods, settings and errors are those of `SchemaRegistryClient`.

    Each call runs in a thread and doesn't block the event loop.

    >>> registry = AsyncSchemaRegistryClient({"schema.registry.url": "http://localhost:8081"})
    >>> await registry.register_schema("flights-value", Schema('{"type": "string"}'))
    1
    """

    @private
    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check the settings without connecting. Raises `ConfigurationError`."""
        config = with_secrets(config)  # before checks: a traceback may show `config`
        self._client = SchemaRegistryClient(config)

    def __repr__(self) -> str:
        client = vars(self).get("_client", "<SchemaRegistryClient>")  # unset for invalid settings
        return str(client).replace("<", "<Async", 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client, as `SchemaRegistryClient.__exit__` does."""

    get_schema = _in_thread(SchemaRegistryClient.get_schema)
    get_schema_by_guid = _in_thread(SchemaRegistryClient.get_schema_by_guid)
    lookup_schema = _in_thread(SchemaRegistryClient.lookup_schema)
    register_schema = _in_thread(SchemaRegistryClient.register_schema)
    registered_schema = _in_thread(SchemaRegistryClient.registered_schema)
    get_latest_version = _in_thread(SchemaRegistryClient.get_latest_version)
    get_version = _in_thread(SchemaRegistryClient.get_version)
    get_subjects = _in_thread(SchemaRegistryClient.get_subjects)
    get_versions = _in_thread(SchemaRegistryClient.get_versions)
    delete_subject = _in_thread(SchemaRegistryClient.delete_subject)
    delete_version = _in_thread(SchemaRegistryClient.delete_version)
    test_compatibility = _in_thread(SchemaRegistryClient.test_compatibility)
    get_compatibility = _in_thread(SchemaRegistryClient.get_compatibility)
    clear_caches = _in_thread(SchemaRegistryClient.clear_caches)
    set_compatibility = _in_thread(SchemaRegistryClient.set_compatibility)
