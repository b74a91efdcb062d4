"""After a closed connection, the client finds the reason by an ApiVersions request if possible."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.simulation.produce_script import every_broker
from tests.simulation.sasl_scene import Scene

from odradek.common.errors import KafkaTimeoutError, SaslExpectedError


def test_the_error_of_a_client_without_sasl_says_that_the_port_requires_sasl() -> None:
    scene = Scene()
    with scene.plain() as admin:
        for _ in range(3):  # each attempt raises while the port requires SASL
            begun = scene.world.now
            with pytest.raises(SaslExpectedError, match="it offers .*SCRAM-SHA-256") as caught:
                admin.list_topics(timeout=30)
            assert scene.world.now - begun < 3.0
            assert caught.value.address is not None


def test_a_client_recovers_once_the_port_no_longer_requires_sasl() -> None:
    scene = Scene()
    with scene.plain() as admin:
        with pytest.raises(SaslExpectedError):
            admin.list_topics(timeout=30)
        scene.cluster.sasl = None
        with suppress(SaslExpectedError):  # the error is kept until the next attempt
            admin.list_topics(timeout=30)
        scene.world.advance(2.0)
        assert admin.list_topics(timeout=30) == ["t"]


def test_calls_wait_for_brokers_that_refuse_connections() -> None:
    scene = Scene()
    scene.cluster.sasl = None
    every_broker(scene.cluster, "crash")
    with scene.plain() as admin:
        with pytest.raises(KafkaTimeoutError):
            admin.list_topics(timeout=5)
        every_broker(scene.cluster, "restart")
        assert admin.list_topics(timeout=30) == ["t"]
