"""Fixtures: a minimal schema registry, and a client that is connected to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.registry_server import RegistryServer, registry_server

from odradek.serialization import SchemaRegistryClient


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient(
        {"schema.registry.url": server.url, "default.api.timeout.ms": 60000}
    )
