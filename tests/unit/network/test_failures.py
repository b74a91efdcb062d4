"""Test the error classes and messages for failures of OpenSSL and sockets.

The failures come from real handshakes in memory, so OpenSSL's texts are real.
"""

from __future__ import annotations

import copy
import pickle
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.network.tls_peers import NAME, server_context, shake, trusting
from tests.unit.network.tls_peers import authority as authority

from odradek.common import errors
from odradek.common.types import Address
from odradek.network.failures import as_error, ended_unexplained
from odradek.testing.brokers.authority import Authority

WHERE = Address("broker-1", 9093)
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NOW, DAY = datetime.now(UTC), timedelta(1)
OVER: dict[str, Any] = {"starts": NOW - 2 * DAY, "ends": NOW - DAY}
EARLY: dict[str, Any] = {"starts": NOW + DAY}
Change = Callable[[ssl.SSLContext], object]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "somebody else")


def error_of(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = NAME
) -> errors.ExplainedError:
    with pytest.raises(ssl.SSLError) as caught:
        shake(client, server, name)
    error = as_error(caught.value, setting_up=True, address=WHERE)
    assert isinstance(error, errors.ExplainedError)
    return error


@pytest.mark.parametrize(
    ("host", "name", "given", "kind", "words"),
    [
        ("other.test", NAME, {}, errors.HostNameMismatchError, f"isn't valid for '{NAME}'"),
        (NAME, "127.0.0.1", {}, errors.HostNameMismatchError, "isn't valid for '127.0.0.1'"),
        (NAME, NAME, OVER, errors.CertificateExpiredError, "has expired"),
        (NAME, NAME, EARLY, errors.CertificateExpiredError, "isn't valid yet"),
    ],
)
def test_the_error_for_an_unsuitable_broker_certificate_is_permanent(
    authority: Authority,
    host: str,
    name: str,
    given: dict[str, datetime],
    kind: type[errors.KafkaError],
    words: str,
) -> None:
    broker = authority.issue("wrong", hosts=[host], **given)  # type: ignore[arg-type]
    error = error_of(trusting(authority), server_context(broker), name)
    assert type(error) is kind
    assert str(error).startswith("broker-1:9093: the broker's certificate")
    assert words in str(error)
    assert error.sticky
    assert not error.retriable


def test_a_certificate_of_an_untrusted_authority_is_rejected(
    authority: Authority, stranger: Authority
) -> None:
    broker = stranger.issue("server", hosts=[NAME])
    error = error_of(trusting(authority), server_context(broker))
    assert type(error) is errors.CertificateUntrustedError
    assert "self-signed certificate in certificate chain" in str(error)
    assert "ssl.ca.location" in str(error)


@pytest.mark.parametrize("version", [V12, V13])
@pytest.mark.parametrize(
    ("client", "words"),
    [("none", ""), ("strange", "doesn't trust the issuer"), ("old", "has expired")],
)
def test_the_error_for_a_rejected_client_certificate_is_permanent_and_names_the_cause(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion, client: str, words: str
) -> None:
    """With TLS 1.3, the client learns of the rejection only after the handshake."""
    server = server_context(authority.issue("server", hosts=[NAME]), authority)
    server.maximum_version = version
    context = trusting(authority)
    if client != "none":
        own = stranger.issue("c") if client == "strange" else authority.issue("c", **OVER)
        context.load_cert_chain(own.both)
    error = error_of(context, server)
    assert error.sticky
    assert "ssl.keystore.location" in str(error)
    assert words in str(error)
    if not (client == "none" and version is V12):  # old OpenSSL versions say "handshake failure"
        assert type(error) is errors.ClientCertificateRequiredError


def at_most_tls_1_2(context: ssl.SSLContext) -> None:
    context.maximum_version = V12


def only_tls_1_3(context: ssl.SSLContext) -> None:
    context.minimum_version = V13


def cipher(name: str) -> Change:
    def change(context: ssl.SSLContext) -> None:
        at_most_tls_1_2(context)
        context.set_ciphers(name)

    return change


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (at_most_tls_1_2, only_tls_1_3),
        (only_tls_1_3, at_most_tls_1_2),
        (cipher("ECDHE-ECDSA-AES128-GCM-SHA256"), cipher("ECDHE-ECDSA-AES256-GCM-SHA384")),
    ],
    ids=["client 1.2", "client 1.3", "cipher"],
)
def test_without_a_common_tls_version_or_cipher_the_handshake_fails(
    authority: Authority, client: Change, server: Change
) -> None:
    context, broker = trusting(authority), server_context(authority.issue("b", hosts=[NAME]))
    client(context)
    server(broker)
    error = error_of(context, broker)
    assert type(error) is errors.TlsProtocolError
    assert error.sticky
    assert "ssl." in str(error)


def error_after_hello(authority: Authority, answer: bytes, *, end: bool = False) -> ssl.SSLError:
    """Return the error of a client that receives these bytes after its ClientHello."""
    received = ssl.MemoryBIO()
    client = trusting(authority).wrap_bio(received, ssl.MemoryBIO(), server_hostname=NAME)
    received.write(answer)
    if end:
        received.write_eof()
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    return caught.value


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", bytes(64)]
)
def test_a_plaintext_response_to_a_tls_handshake_raises_plaintext_port_error(
    authority: Authority, answer: bytes
) -> None:
    error = as_error(error_after_hello(authority, answer), setting_up=True, address=WHERE)
    assert type(error) is errors.PlaintextPortError
    assert error.sticky
    assert "doesn't speak TLS" in str(error)
    assert "security.protocol" not in str(error)  # the error doesn't advise to disable TLS


ALERT = b"\x15\x03\x03\x00\x02\x02"


def test_tls_alerts_become_errors_that_explain_the_alert(authority: Authority) -> None:
    """Test TLS alerts: unknown server name, transient failure, failure of a connection in use."""
    seen = error_after_hello(authority, ALERT + b"\x70")
    assert type(as_error(seen, setting_up=True)) is errors.HostNameMismatchError
    error = as_error(error_after_hello(authority, ALERT + b"\x50"), setting_up=True)
    assert type(error) is errors.TlsError
    assert error.retriable
    assert not error.sticky
    assert str(error) == "the TLS handshake failed: tlsv1 alert internal error"
    lost = as_error(error_after_hello(authority, ALERT + b"\x14"), setting_up=False)
    assert type(lost) is errors.DisconnectedError
    assert lost.refresh_metadata
    # OpenSSL 3.5 writes ssl/tls
    assert re.fullmatch("TLS: (sslv3|ssl/tls) alert bad record mac", str(lost))


def test_a_tls_handshake_that_ends_without_an_alert_is_retried(authority: Authority) -> None:
    """A proxy whose broker is down closes the connection like this, and may recover."""
    seen = error_after_hello(authority, b"", end=True)
    error = as_error(seen, setting_up=True, address=WHERE)
    assert ended_unexplained(seen)
    assert ended_unexplained(None)
    assert ended_unexplained(ConnectionResetError(104, "reset"))
    assert not ended_unexplained(error_after_hello(authority, b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert type(error) is errors.TlsError
    assert error.retriable
    assert not error.sticky
    assert "closed during the TLS handshake" in str(error)


@pytest.mark.parametrize(
    ("seen", "up", "kind", "text"),
    [
        (None, False, errors.ConnectionFailedError, "the broker closed the connection"),
        (None, True, errors.DisconnectedError, "the broker closed the connection"),
        (ConnectionRefusedError(), False, errors.ConnectionRefusedByPeerError, "refused"),
        ("refused", False, errors.ConnectionRefusedByPeerError, "refused"),
        (OSError(113, "No route to host"), False, errors.ConnectionFailedError, "No route to host"),
        (ConnectionResetError(104, "reset"), True, errors.DisconnectedError, "reset"),
        (errors.DnsError("no such name"), False, errors.DnsError, "no such name"),
    ],
)
def test_each_socket_error_becomes_a_kafka_error_with_its_text(
    seen: BaseException | str | None, up: bool, kind: type[errors.KafkaError], text: str
) -> None:
    error = as_error(seen, setting_up=not up, address=WHERE)
    assert type(error) is kind
    assert text in str(error)


def test_the_brokers_address_is_added_to_an_error_without_an_address() -> None:
    error = errors.CredentialsRefusedError("the broker said no.")
    placed = as_error(error, setting_up=True, address=WHERE)
    assert str(placed).startswith("broker-1:9093: the broker said no. Check sasl.username")
    assert as_error(placed, setting_up=True, address=Address("other", 1)) is placed


@pytest.mark.parametrize(
    "error",
    [
        errors.TlsError("what", WHERE, "cure"),
        errors.HostNameMismatchError("what", WHERE),
        errors.MechanismUnsupportedError("what", WHERE, mechanisms=["PLAIN", "SCRAM-SHA-512"]),
        errors.TlsPortError("what"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_network_errors_can_be_pickled_and_copied(error: errors.ExplainedError) -> None:
    pickled = pickle.loads(pickle.dumps(error))  # noqa: S301
    for other in (pickled, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.address == error.address
        assert other.args == error.args
    assert str(error.at(Address("h", 1))).startswith(str(error.address or "h:1"))


def test_the_error_lists_the_sasl_mechanisms_that_the_broker_supports() -> None:
    error = errors.MechanismUnsupportedError("no PLAIN", mechanisms=["SCRAM-SHA-512"])
    assert error.at(WHERE).mechanisms == ("SCRAM-SHA-512",)
    assert str(error.at(WHERE)).endswith("one that the broker supports: SCRAM-SHA-512.")
