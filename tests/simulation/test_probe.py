"""An end without a word is explained by the next dial's question, and only where that tells."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.simulation.sasl_scene import Scene

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.common.errors import KafkaTimeoutError, SaslExpectedError


def plain(scene: Scene) -> dict[str, str]:
    return {"bootstrap.servers": scene.cluster.bootstrap_servers}


def test_a_port_that_wants_sasl() -> None:
    scene = Scene()
    host = scene.world.host("plain")
    with on_host(host, Admin, plain(scene)) as admin:
        for _ in range(3):  # as long as that is so, each attempt finds it out
            begun = host.now()
            with pytest.raises(SaslExpectedError, match="it offers .*SCRAM-SHA-256") as caught:
                admin.list_topics(timeout=30)
            assert host.now() - begun < 3.0
            assert caught.value.address is not None


def test_sasl_that_is_switched_off_lets_in() -> None:
    scene = Scene()
    with on_host(scene.world.host("plain"), Admin, plain(scene)) as admin:
        with pytest.raises(SaslExpectedError):
            admin.list_topics(timeout=30)
        scene.cluster.sasl = None
        with suppress(SaslExpectedError):  # it stands until the next attempt
            admin.list_topics(timeout=30)
        scene.world.advance(2.0)
        assert admin.list_topics(timeout=30) == ["t"]


def test_brokers_that_are_gone_are_waited_for() -> None:
    scene = Scene()
    scene.cluster.sasl = None
    for i in scene.cluster.brokers:
        scene.cluster.crash(i)
    with on_host(scene.world.host("plain"), Admin, plain(scene)) as admin:
        with pytest.raises(KafkaTimeoutError):
            admin.list_topics(timeout=5)
        for i in scene.cluster.brokers:
            scene.cluster.restart(i)
        assert admin.list_topics(timeout=30) == ["t"]
