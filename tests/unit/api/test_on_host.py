"""Test that `on_host`, which selects a client's I/O host, only affects the calling thread."""

from __future__ import annotations

import threading

import pytest

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.common.errors import ArgumentError
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.simulation import World
from odradek.simulation.world.host import SimulatedHost


def test_on_host_has_no_effect_on_a_client_that_another_thread_creates() -> None:
    found = []

    def make() -> Admin:
        def elsewhere() -> None:
            with Admin(bootstrap_servers="b:9092") as admin:
                found.append(type(admin._host))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return Admin(bootstrap_servers="b:9092")

    with on_host(World(1).host("here"), make) as admin:
        assert type(admin._host) is SimulatedHost
    assert found == [SelectorHost]


def test_background_must_be_a_bool() -> None:
    with pytest.raises(ArgumentError, match="background"):
        Admin(bootstrap_servers="b:9092", background="no")  # type: ignore[arg-type]
