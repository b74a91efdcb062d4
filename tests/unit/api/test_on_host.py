"""Test that `on_host` only affects clients of the thread that calls it."""

from __future__ import annotations

import threading

import pytest

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.common.errors import ArgumentError
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.simulation import World
from odradek.simulation.world.host import SimulatedHost


def test_a_client_of_another_thread_gets_its_own_host() -> None:
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
