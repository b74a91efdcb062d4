"""Test TLS peers that break off, change or invent handshake bytes: the error is always a TlsError.

The server's bytes are recorded from a real handshake in memory.
"""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.network.tls_peers import NAME, server_context, trusting
from tests.unit.network.tls_peers import authority as authority
from tests.volume import examples

from odradek.common.errors import KafkaError, TlsError
from odradek.network.failures import as_error
from odradek.testing.brokers.authority import Authority

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def client(authority: Authority) -> ssl.SSLContext:
    return trusting(authority)


@pytest.fixture(scope="module", params=VERSIONS, ids=["1.2", "1.3"])
def flight(request: pytest.FixtureRequest, authority: Authority, client: ssl.SSLContext) -> bytes:
    """Return the bytes that the server sends in response to a ClientHello."""
    context = server_context(authority.issue("server", hosts=[NAME]))
    context.maximum_version = request.param
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(ssl.MemoryBIO(), to_server, server_hostname=NAME)
    answering = context.wrap_bio(to_server, to_client, server_side=True)
    for end in (asking, answering):
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
    return to_client.read()


def error_after_hello(client: ssl.SSLContext, data: bytes) -> KafkaError:
    """Return the error of a client that gets these bytes and EOF after its ClientHello."""
    received = ssl.MemoryBIO()
    end = client.wrap_bio(received, ssl.MemoryBIO(), server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    received.write(data)
    received.write_eof()
    with pytest.raises(ssl.SSLError) as caught:
        end.do_handshake()
    return as_error(caught.value, setting_up=True)


@pytest.mark.slow
def test_a_handshake_truncated_at_any_byte_raises_tls_error(
    client: ssl.SSLContext, flight: bytes
) -> None:
    assert len(flight) > 500
    for length in range(len(flight)):
        error = error_after_hello(client, flight[:length])
        assert isinstance(error, TlsError)
        if length < 5:  # too short for a TLS record
            assert error.retriable
            assert not error.sticky


def test_a_handshake_with_a_changed_byte_raises_tls_error(
    client: ssl.SSLContext, flight: bytes
) -> None:
    @given(at=st.integers(0, len(flight) - 1), byte=st.integers(0, 255))
    @settings(max_examples=examples(60))
    def check(at: int, byte: int) -> None:
        changed = flight[:at] + bytes([byte]) + flight[at + 1 :]
        assert isinstance(error_after_hello(client, changed), TlsError)

    check()


@pytest.mark.slow
@given(
    data=st.binary(max_size=200), record=st.sampled_from((b"", b"\x16\x03\x03", b"\x15\x03\x03"))
)
@settings(max_examples=examples(60))
def test_random_bytes_instead_of_a_handshake_raise_tls_error(data: bytes, record: bytes) -> None:
    assert isinstance(error_after_hello(ssl.create_default_context(), record + data), TlsError)
