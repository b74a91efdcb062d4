"""A consumer that can't commit when it closes warns of the records that will be read again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker
from tests.simulation.sasl_scene import PASSWORD, USER

from odradek.api.consumer import Consumer
from odradek.common.errors import AuthenticationError, ClusterIdMismatchError, KafkaError
from odradek.common.errors.kafka import GroupAuthorizationError
from odradek.simulation.brokers.broker_faults import answer_error
from odradek.simulation.brokers.sasl_listener import SaslListener

DENIED = GroupAuthorizationError.code or 0
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": USER,
    "sasl_password": PASSWORD,
}


def reading(scene: Scene, **config: Any) -> Consumer:
    """Return a member that has committed 40 records and processed 4 more."""
    scene.write(range(40), **config)
    a = scene.subscribed("a", auto_commit_interval_ms=1_000_000, **config)
    scene.read(a, 40)
    assert a.poll(0) == []
    a.commit()
    scene.write(range(40, 44), **config)
    scene.read(a, 4)
    assert a.poll(0) == []
    return a


def poll_until(a: Consumer, kind: type[KafkaError]) -> None:
    """Poll until this error is raised."""
    for _ in range(300):
        try:
            a.poll(0.1)
        except kind:
            return
    raise AssertionError(f"no {kind.__name__}: {a.explain()}")


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [r.getMessage() for r in caplog.records]
    return [text for text in texts if "will be read again" in text]


ENDS = pytest.mark.parametrize("ends", ["close", "unsubscribe"])


@PROTOCOLS
@ENDS
def test_close_warns_if_the_credentials_are_refused(
    protocol: str, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each call raises the authentication error, so close() doesn't wait for the commit."""
    scene = Scene(protocol)
    sasl = SaslListener(users={USER: PASSWORD}, wall_clock=scene.world.wall_clock)
    scene.cluster.sasl = sasl
    a = reading(scene, **SASL)
    sasl.users.clear()
    scene.disconnect()
    poll_until(a, AuthenticationError)
    getattr(a, ends)(timeout=2.0)
    scene.world.run_until(scene.world.now + 3.0)  # unsubscribe() continues in the background
    (text,) = warned(caplog)
    assert "4 records will be read again" in text
    (left,) = (r.getMessage() for r in caplog.records if "was not left" in r.getMessage())
    assert "invalid credentials" in left


@PROTOCOLS
def test_close_warns_after_the_client_found_a_wrong_cluster(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The bootstrap addresses lead to a different cluster, so no call succeeds any more."""
    scene = Scene(protocol)
    a = reading(scene)
    scene.cluster.cluster_id = "another"
    scene.disconnect()
    poll_until(a, ClusterIdMismatchError)
    a.close()
    (text,) = warned(caplog)
    assert "4 records will be read again" in text


@PROTOCOLS
@ENDS
def test_close_warns_if_the_commit_is_denied(
    protocol: str, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    a = reading(scene)
    answer_error(scene.cluster, "OffsetCommit", DENIED, 1000)
    getattr(a, ends)()
    (text,) = warned(caplog)
    assert "4 records will be read again" in text


@PROTOCOLS
def test_close_with_a_timeout_of_zero_warns_of_uncommitted_records(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    a = reading(scene)
    a.close(timeout=0)
    (text,) = warned(caplog)
    assert "4 records will be read again" in text


@PROTOCOLS
def test_close_warns_if_the_membership_has_already_ended(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The partitions are lost with the membership, so close() has nothing left to commit."""
    scene = Scene(protocol)
    a = reading(scene)
    heartbeat = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
    answer_error(scene.cluster, heartbeat, DENIED, 1000)
    poll_until(a, GroupAuthorizationError)
    a.close()
    (text,) = warned(caplog)
    assert "4 records will be read again" in text


@PROTOCOLS
def test_a_revocation_warns_if_the_commit_is_denied(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    a = reading(scene)
    answer_error(scene.cluster, "OffsetCommit", DENIED, 1000)
    b = scene.subscribed("b")
    until = scene.world.now + 30.0
    while not warned(caplog) and scene.world.now < until:
        a.poll(0.1)
        b.poll(0.1)
    (text,) = warned(caplog)
    assert "records will be read again" in text


@PROTOCOLS
def test_unread_records_cause_no_warning(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(protocol)
    a = scene.subscribed("a", auto_commit_interval_ms=1_000_000)
    while not a.assignment():
        a.poll(0.1)
    assert {a.position(p) for p in a.assignment()} == {0}
    every_broker(scene.cluster, "crash")
    a.close(timeout=1.0)
    assert not warned(caplog)


@PROTOCOLS
def test_records_of_a_deleted_topic_cause_no_warning(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    a = reading(scene)
    scene.cluster.delete_topic("t")
    for _ in range(30):
        a.poll(0.5)
    a.close()
    assert not warned(caplog)
