"""Certificates of the certificate authority for tests, verified with Python and Java."""

from __future__ import annotations

import datetime
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.time_limits import HANG_S

from odradek.testing import Authority, KeyAndCertificate, java_home
from odradek.testing.brokers.authority import STORE_PASSWORD

DAY = datetime.timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server(identity: KeyAndCertificate, authority: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


def client(authority: Authority, identity: KeyAndCertificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if identity is not None:
        context.load_cert_chain(identity.both)
    return context


def shake_hands(ours: ssl.SSLContext, theirs: ssl.SSLContext, host: str) -> None:
    """Perform a TLS handshake without sockets; raise the error of either side."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [ours.wrap_bio(a, b, server_hostname=host), theirs.wrap_bio(b, a, server_side=True)]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert ends == []


@pytest.mark.parametrize("host", ["localhost", "127.3.2.10", "kafka.example"])
def test_a_server_certificate_is_trusted_for_its_hosts(authority: Authority, host: str) -> None:
    broker = authority.issue("broker", hosts=["localhost", "127.3.2.10", "kafka.example"])
    shake_hands(client(authority), server(broker), host)


def test_a_certificate_with_a_wrong_host_or_authority_or_date_is_rejected(
    authority: Authority, tmp_path: Path
) -> None:
    broker = authority.issue("broker", hosts=["127.3.2.10"])
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(client(authority), server(broker), "127.3.2.11")
    other = Authority(tmp_path / "other", "Another authority")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"issuer certificate|self-signed"):
        shake_hands(client(other), server(broker), "127.3.2.10")
    now = datetime.datetime.now(datetime.UTC)
    old = authority.issue("old", hosts=["localhost"], starts=now - 2 * DAY, ends=now - DAY)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(client(authority), server(old), "localhost")
    young = authority.issue("young", hosts=["localhost"], starts=now + DAY)
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        shake_hands(client(authority), server(young), "localhost")


def test_client_certificates_are_verified(authority: Authority) -> None:
    broker = authority.issue("broker", hosts=["localhost"])
    alice = authority.issue("alice")
    shake_hands(client(authority, alice), server(broker, authority), "localhost")
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        shake_hands(client(authority), server(broker, authority), "localhost")


def test_an_authority_in_an_existing_directory_is_reused(authority: Authority) -> None:
    again = Authority(authority.directory, "doesn't matter now")
    broker = again.issue("broker", hosts=["localhost"])
    shake_hands(client(authority), server(broker), "localhost")


def test_private_keys_are_readable_by_their_owner_only(authority: Authority) -> None:
    alice = authority.issue("alice")
    private = [alice.key, alice.both, alice.encrypted_key("secret"), alice.keystore("PKCS12")]
    private.append(authority.directory / "authority-key.pem")
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(alice.certificate, private[2], "secret")
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(alice.certificate, private[2], "another")


@pytest.mark.slow
def test_javas_keytool_can_read_every_key_store(authority: Authority) -> None:
    """Java needs an attribute to trust a certificate in a PKCS12 store. JKS is written by Java."""
    alice = authority.issue("alice")
    for path, entry in (
        (authority.truststore("PKCS12"), "trustedCertEntry"),
        (alice.keystore("PKCS12"), "PrivateKeyEntry"),
    ):
        command = [
            str(java_home() / "bin" / "java"), "-XX:TieredStopAtLevel=1",
            "sun.security.tools.keytool.Main", "-list",
            "-keystore", str(path), "-storepass", STORE_PASSWORD,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert done.returncode == 0, done.stdout
        assert entry in done.stdout
    assert alice.keystore("JKS").read_bytes()[:4] == b"\xfe\xed\xfe\xed"
    stored = pkcs12.load_pkcs12(alice.keystore("PKCS12").read_bytes(), STORE_PASSWORD.encode())
    assert stored.cert is not None
    assert len(stored.additional_certs) == 1
    assert alice.keystore("PEM") == alice.both
    assert authority.truststore("PEM") == authority.certificate
