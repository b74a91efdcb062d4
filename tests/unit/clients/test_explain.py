"""Test `explain()`: causes of failures in words, and snapshots while the client works."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin
from odradek.api.base import on_host
from odradek.clients.explain import explanation
from odradek.clients.explain import explanation as module
from odradek.clients.explain.causes import CAUSES, ConnectionStage, cause, cure_of
from odradek.clients.explain.explanation import (
    AddressExplanation,
    OutageExplanation,
    diagnosis,
    line,
)
from odradek.common import errors
from odradek.common.types import Address
from odradek.record import PoolState
from odradek.simulation import SimulatedCluster, World

ADDRESS = AddressExplanation(
    address="h:1",
    role="broker 1",
    state="disconnected",
    ip="10.0.0.1",
    proved=True,
    silent=False,
    in_flight=0,
    pending_for=None,
    setup_left=None,
    throttled_for=0.0,
    failures=0,
    last_error=None,
    last_error_age=None,
    meaning=None,
    backoff_left=0.0,
)


def changed(**fields: Any) -> AddressExplanation:
    known = {name: getattr(ADDRESS, name) for name in AddressExplanation.__slots__}
    return AddressExplanation(**{**known, **fields})


def meaning(error: BaseException | None, state: str, **more: bool) -> str | None:
    found = cause(error, state, **more)
    return None if found is None else found.meaning


def stage(error: BaseException) -> ConnectionStage:
    found = cause(error, "disconnected", silent=False)
    assert found is not None
    return found.stage


def test_each_cause_has_a_remedy_and_a_connection_stage() -> None:
    for _, known in CAUSES:
        assert known.cure.endswith(".")
    expected = {
        ConnectionStage.TLS: errors.TlsPortError("it wants TLS"),
        ConnectionStage.SASL: errors.SaslExpectedError("it wants SASL"),
        ConnectionStage.PROTOCOL: errors.NotKafkaError("HTTP"),
        ConnectionStage.NAME: errors.DnsError("h"),
        ConnectionStage.NETWORK: errors.ConnectionRefusedByPeerError("refused"),
        ConnectionStage.PROXY: errors.ProxyError("no way"),
        ConnectionStage.CLUSTER: errors.ClusterIdMismatchError("a", "b", None),
        ConnectionStage.BROKER: errors.DisconnectedError("gone"),
    }
    assert {stage(error): error for error in expected.values()} == expected
    assert cure_of(errors.CertificateUntrustedError("nobody knows it", None, "Do that.")) == (
        "Do that."
    )
    assert "Start the broker" in (cure_of(errors.ConnectionRefusedByPeerError("refused")) or "")
    assert cure_of(None) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            errors.DnsError("the name 'h' doesn't resolve"),
            "the name doesn't resolve on this machine",
        ),
        (errors.ConnectionRefusedByPeerError("connection refused"), "nothing listens there"),
        (errors.ConnectionSetupTimeoutError("not ready after 10 s (connecting)"), "a firewall"),
        (errors.ConnectionSetupTimeoutError("not ready after 9 s (resolving)"), "name server"),
        (
            errors.ConnectionSetupTimeoutError("not ready after 9 s (checking_api_versions)"),
            "accepts connections but never answers",
        ),
        (errors.NotKafkaError("not Kafka: the peer speaks HTTP"), "the peer speaks HTTP"),
        (errors.MalformedMessageError("a frame of -1 bytes"), "doesn't answer in Kafka's protocol"),
        (errors.TlsError("the handshake ended"), "the TLS handshake failed"),
        (errors.CertificateUntrustedError("nobody knows it."), "nobody knows it"),
        (errors.CredentialsRefusedError("the broker refused them"), "the broker refused them"),
        (errors.ConnectionFailedError("the broker closed the connection"), "before it answers"),
        (errors.ResponseTimeoutError("no answer to Fetch"), "stopped answering"),
        (errors.DisconnectedError("reset"), "in use was closed"),
        (errors.ClusterIdMismatchError("a", "b", Address("h", 1)), "a different cluster"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_connection_error_is_explained_by_its_usual_cause(
    error: Exception, words: str
) -> None:
    assert words in (meaning(error, "disconnected", silent=False) or "")


def test_a_connection_that_a_broker_closes_after_api_versions_is_explained() -> None:
    error = errors.DisconnectedError("the broker closed the connection")
    text = meaning(error, "disconnected", silent=False, unproved=True) or ""
    assert "closes the connection at the first request" in text


def test_no_cause_of_a_connection_error_is_given_if_none_is_known() -> None:
    assert meaning(None, "disconnected", silent=False) is None
    assert meaning(errors.KafkaError("?"), "disconnected", silent=False) is None
    old = errors.DisconnectedError("reset")
    assert meaning(old, "ready", silent=False) is None  # the client has reconnected


@pytest.mark.parametrize(
    ("state", "words"),
    [("resolving", "name server"), ("connecting", "firewall"), ("ready", "never answers")],
)
def test_a_missing_response_is_explained_by_the_connections_state(state: str, words: str) -> None:
    assert words in (meaning(None, state, silent=True) or "")


def test_the_state_of_a_brokers_address_is_described_in_one_line() -> None:
    assert line(ADDRESS) == "h:1 (broker 1): disconnected, not needed now"
    pending = changed(state="connecting", pending_for=3.0, setup_left=7.0, silent=True)
    assert line(pending) == "h:1 (broker 1): connecting, no response for 3.0 s, times out in 7.0 s"
    busy = changed(state="ready", in_flight=2, throttled_for=0.5)
    assert line(busy) == "h:1 (broker 1): ready, 2 requests in flight, throttled for 0.5 s"
    failed = changed(
        failures=2,
        last_error="E: x",
        last_error_age=1.0,
        next_dial_in=0.25,
        next_dial_after="its backoff",
        meaning="why",
    )
    assert line(failed) == (
        "h:1 (broker 1): disconnected, 2 failures in a row, last error 1.0 s ago at 10.0.0.1: "
        "E: x, next connection attempt in 0.25 s, after its backoff [why]"
    )


def test_an_address_description_says_what_the_next_connection_attempt_waits_for() -> None:
    waits = changed(next_dial_after="metadata")
    assert line(waits) == "h:1 (broker 1): disconnected, next connection attempt after metadata"


def test_the_diagnosis_counts_brokers_by_cause() -> None:
    addresses = [
        changed(address="h:1", failures=1, meaning="nothing listens there"),
        changed(address="h:2", failures=1, meaning="nothing listens there"),
        changed(address="h:3", failures=1, meaning="a firewall", proved=False),
        changed(address="f:1", role="bootstrap", failures=1),
    ]
    outage = OutageExplanation(9.0, "a dial", False, 1, 9.0, 1, 0, 1, 0, 0, 0, 0, 0)
    text = diagnosis(None, "abc", outage, addresses, 0.5)
    assert text == (
        "Every known broker fails: cluster abc, 0 of 3 brokers connected; "
        "3 brokers fail (2: nothing listens there; 1: a firewall). The next attempt is in 0.5 s."
    )
    addresses.append(changed(address="h:4", state="ready"))
    text = diagnosis(None, "abc", outage, addresses, 0.5)
    assert text.startswith("It works in part: cluster abc, 1 of 4 brokers connected; 3 bro")
    text = diagnosis(None, "abc", None, addresses, 0.5)
    assert "It works: cluster abc, 1 of 4 brokers connected; at the last attempt, 3 b" in text


def test_taking_a_snapshot_is_retried_if_the_client_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    cluster = SimulatedCluster(world)
    admin = on_host(world.host(), Admin, bootstrap_servers=cluster.bootstrap_servers)
    admin.list_topics()
    takes: list[None] = []
    addresses = module._addresses

    def moving(*arguments: Any) -> Any:
        takes.append(None)
        if len(takes) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return addresses(*arguments)

    monkeypatch.setattr(module, "_addresses", moving)
    assert admin.explain().cluster_id == cluster.cluster_id
    assert len(takes) == 3
    admin.close()


def test_receive_buffers_are_shown_after_large_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    cluster = SimulatedCluster(world)
    admin = on_host(world.host(), Admin, bootstrap_servers=cluster.bootstrap_servers)
    assert "buffers for" not in str(admin.explain())
    buffers = admin._engine.network.buffers
    buffers.limit = 64 << 20
    kept = memoryview(buffers.take(8 << 20))
    state = PoolState(idle=1 << 20, limit=64 << 20, lent=3 << 19, reused=9, made=2)
    monkeypatch.setattr(module, "pool_state", lambda: state)
    picture = admin.explain()
    assert picture.buffers.received >= len(kept)
    assert (
        "of 64.0 MiB (created 1, reused 0 times); for columns: 1.5 MiB in use, "
        "1.0 MiB of 64.0 MiB idle (created 2, reused 9 times, shared by all clients of this "
        "process)" in str(picture)
    )
    assert picture.to_dict()["buffers"]["received_made"] == 1
    admin.close()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "in progress"), (0.04, "in progress"), (0.06, "in 0.1 s")]
)
def test_a_wait_of_less_than_50_ms_is_shown_as_in_progress(seconds: float, said: str) -> None:
    assert explanation._in(seconds) == said
