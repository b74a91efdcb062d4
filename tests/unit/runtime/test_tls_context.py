"""Test the effect of each TLS option with handshakes, and changes of certificate files.

Handshakes are in memory, except in the last tests, which use sockets and a real I/O loop.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from tests.time_limits import HANG_S
from tests.unit.network.tls_peers import server_context, shake
from tests.unit.runtime.peers import ScriptedEngine, echo, peer, run

import odradek
from odradek.common.config import ADMIN, Config
from odradek.common.errors import ConfigurationError, HostNameMismatchError, TlsError
from odradek.common.types import Address
from odradek.network.failures import as_error
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.runtime.tls.tls_context import TlsContexts, https_context, https_source, tls_source
from odradek.testing.brokers.authority import STORE_PASSWORD, Authority, KeyAndCertificate

KEY_PASSWORD = "key-password"  # noqa: S105  of a test key
Version = ssl.TLSVersion
DAY = datetime.timedelta(days=1)


def config(given: dict[str, Any]) -> Config:
    return Config(ADMIN, {"bootstrap.servers": "b:1", "security.protocol": "SSL", **given})


def context(**given: Any) -> ssl.SSLContext:
    return TlsContexts(config({n.replace("__", "."): v for n, v in given.items()})).context()


def trusting(authority: Authority, **given: Any) -> ssl.SSLContext:
    return context(ssl__ca__location=str(authority.certificate), **given)


ANY_NAME = {"ssl__endpoint__identification__algorithm": ""}


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS", "inline", "folder", "leaf", "system"])
def test_brokers_with_certificates_of_any_configured_truststore_are_trusted(
    authority: Authority,
    broker: KeyAndCertificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    match kind:
        case "inline":
            text = authority.certificate.read_text().replace("\n", "\\n")
            given = {"ssl__truststore__certificates": text}
        case "folder":
            given = {"ssl__truststore__location": str(hashed(authority, tmp_path))}
        case "leaf":  # as in Java, a broker's own certificate can be trusted
            leaf = tmp_path / "leaf.pem"
            own = x509.load_pem_x509_certificates(broker.certificate.read_bytes())[0]
            leaf.write_bytes(own.public_bytes(Encoding.PEM))
            given = {"ssl__truststore__location": str(leaf)}
        case "system":
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
            given = {}
        case _:
            path = authority.truststore(kind)  # type: ignore[arg-type]
            given = {"ssl__truststore__location": str(path)}
            if kind != "PEM":
                given["ssl__truststore__password"] = STORE_PASSWORD
    shake(context(**given), server_context(broker))


def hashed(authority: Authority, folder: Path) -> Path:
    """Create a folder in which OpenSSL finds the certificate by the hash of its subject."""
    done = subprocess.run(
        ["openssl", "x509", "-noout", "-hash", "-in", authority.certificate],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    (folder / f"{done.stdout.strip()}.0").write_bytes(authority.certificate.read_bytes())
    return folder


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "b-1.k.example"])
def test_certificates_for_the_brokers_host_name_are_accepted(
    authority: Authority, broker: KeyAndCertificate, name: str
) -> None:
    shake(trusting(authority), server_context(broker), name)


@pytest.mark.parametrize("name", ["other.example", "127.0.0.2", "a.b.k.example", "k.example"])
def test_certificates_for_other_host_names_are_rejected_unless_the_check_is_disabled(
    authority: Authority, broker: KeyAndCertificate, name: str
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch|IP address mism"):
        shake(trusting(authority), server_context(broker), name)
    shake(trusting(authority, **ANY_NAME), server_context(broker), name)


def test_certificates_of_other_authorities_are_rejected_unless_the_check_is_disabled(
    broker: KeyAndCertificate, other: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    for names in ({}, ANY_NAME):
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in cert"):
            shake(trusting(other, **names), server_context(broker))
    shake(context(enable__ssl__certificate__verification=False), server_context(broker), "any")
    assert "any server can impersonate the brokers" in caplog.text


class Signer(NamedTuple):
    """An authority's certificate and key, and its revocation lists."""

    own: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate(self, name: str, key: ec.EllipticCurvePrivateKey, *, signs: bool) -> Any:
        today = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder(
                self.own.subject,
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
                key.public_key(),
                x509.random_serial_number(),
                today - DAY,
                today + DAY,
            )
            .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        return made.sign(self.key, SHA256())

    def revokes(
        self, *certificates: x509.Certificate, begins: float = -1.0, ends: float = 1.0
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateRevocationListBuilder(
            self.own.subject, now + begins * DAY, now + ends * DAY
        )
        for one in certificates:
            revoked = x509.RevokedCertificateBuilder(one.serial_number, now).build()
            made = made.add_revoked_certificate(revoked)
        return made.sign(self.key, SHA256()).public_bytes(Encoding.PEM)


def signer(authority: Authority) -> Signer:
    key = load_pem_private_key((authority.directory / "authority-key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Signer(x509.load_pem_x509_certificate(authority.certificate.read_bytes()), key)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Create an authority that may sign certificates of other authorities."""
    folder = tmp_path_factory.mktemp("root")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")])
    now = datetime.datetime.now(datetime.UTC)
    own = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    (folder / "authority.pem").write_bytes(own.public_bytes(Encoding.PEM))
    (folder / "authority-key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return Authority(folder)


def refusal(authority: Authority, server: ssl.SSLContext, lists: bytes, path: Path) -> TlsError:
    path.write_bytes(lists)
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake(trusting(authority, ssl__crl__location=str(path)), server)
    found = as_error(caught.value, setting_up=True, address=Address("b", 9093))
    assert isinstance(found, TlsError)
    assert found.sticky
    return found


def test_a_broker_with_a_revoked_certificate_is_rejected(
    authority: Authority, broker: KeyAndCertificate, tmp_path: Path
) -> None:
    path, by = tmp_path / "crl.pem", signer(authority)
    own = x509.load_pem_x509_certificates(broker.certificate.read_bytes())[0]
    server = server_context(broker)
    path.write_bytes(by.revokes() + by.revokes())
    shake(trusting(authority, ssl__crl__location=str(path)), server)
    found = refusal(authority, server, by.revokes(own), path)
    assert "was revoked by its authority. Don't trust this broker" in str(found)


@pytest.mark.parametrize("times", [(-2.0, -1.0, "has expired"), (1.0, 2.0, "isn't valid yet")])
def test_an_outdated_revocation_list_is_reported(
    authority: Authority, broker: KeyAndCertificate, tmp_path: Path, times: tuple[Any, ...]
) -> None:
    begins, ends, text = times
    lists = signer(authority).revokes(begins=begins, ends=ends)
    found = refusal(authority, server_context(broker), lists, tmp_path / "crl.pem")
    assert f"a list of revoked certificates {text}. Put the current list" in str(found)


def test_a_revocation_list_of_another_authority_is_reported(
    authority: Authority, other: Authority, broker: KeyAndCertificate, tmp_path: Path
) -> None:
    lists = signer(other).revokes()
    found = refusal(authority, server_context(broker), lists, tmp_path / "crl.pem")
    assert "has no list of revoked certificates of an authority that signed" in str(found)
    assert "Put the current list of each authority into the file" in str(found)


def test_only_the_brokers_certificate_and_not_its_chain_is_checked_for_revocation(
    root: Authority, tmp_path: Path
) -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    above = signer(root)
    between = Signer(above.certificate("between", keys[0], signs=True), keys[0])
    own = between.certificate("localhost", keys[1], signs=False)
    chain, path = tmp_path / "chain.pem", tmp_path / "crl.pem"
    chain.write_bytes(
        keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + own.public_bytes(Encoding.PEM)
        + between.own.public_bytes(Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    unrelated = Signer(above.certificate("unrelated", keys[1], signs=True), keys[1])
    for lists in (
        between.revokes(),
        above.revokes(between.own) + between.revokes(),
        unrelated.revokes() + between.revokes(),
    ):
        path.write_bytes(lists)
        shake(trusting(root, ssl__crl__location=str(path)), server)
    assert "was revoked" in str(refusal(root, server, between.revokes(own), path))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"-----BEGIN X509 CRL-----", "it contains no list of revoked certificates"),
        (b"some text", "it contains no list of revoked certificates"),
        (b"", "it is empty"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "is invalid"),
    ],
)
def test_a_file_without_a_revocation_list_is_rejected(
    authority: Authority, tmp_path: Path, content: bytes, text: str
) -> None:
    path = tmp_path / "crl.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"ssl.crl.location: {path}: .*{text}"):
        trusting(authority, ssl__crl__location=str(path))


def test_a_certificate_among_revocation_lists_is_rejected(
    authority: Authority, other: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "crl.pem"
    path.write_bytes(signer(authority).revokes() + other.certificate.read_bytes())
    with pytest.raises(ConfigurationError, match=r"would become a trusted authority: .*ca\.loc"):
        trusting(authority, ssl__crl__location=str(path))


KEYS = ["PEM", "PKCS12", "JKS", "inline", "two files", "one file", "encrypted", "mixed"]


def key_options(alice: KeyAndCertificate, kind: str) -> dict[str, Any]:
    match kind:
        case "inline":
            return {
                "ssl.keystore.key": alice.key.read_text().replace("\n", "\\n"),
                "ssl.keystore.certificate.chain": alice.certificate.read_text(),
            }
        case "two files":
            return {"ssl_certfile": str(alice.certificate), "ssl_keyfile": str(alice.key)}
        case "one file":
            return {"ssl_certfile": str(alice.both)}
        case "encrypted":
            return {
                "ssl.certificate.location": str(alice.certificate),
                "ssl.key.location": str(alice.encrypted_key(KEY_PASSWORD)),
                "ssl.key.password": KEY_PASSWORD,
            }
        case "mixed":
            return {
                "ssl.key.pem": alice.key.read_text(),
                "ssl.certificate.location": str(alice.certificate),
            }
    found = {"ssl.keystore.location": str(alice.keystore(kind))}  # type: ignore[arg-type]
    if kind != "PEM":
        found["ssl.keystore.password"] = STORE_PASSWORD
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS)
def test_client_certificates_are_sent_from_every_kind_of_keystore(
    authority: Authority, broker: KeyAndCertificate, alice: KeyAndCertificate, kind: str
) -> None:
    given = {"ssl.ca.location": str(authority.certificate), **key_options(alice, kind)}
    client = TlsContexts(config(given)).context()
    for version in (Version.TLSv1_2, Version.TLSv1_3):
        mutual = server_context(broker, authority)
        mutual.maximum_version = version
        shake(client, mutual)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ssl.key.password": "planted-wrong"}, "ssl.key.password is wrong, or the key is corrupt"),
        ({"ssl.key.password": None}, "private key is encrypted: set ssl.key.password"),
        ({"ssl.key.password": "planted" * 200}, "can't be decrypted: ssl.key.password is wrong"),
    ],
)
def test_an_encrypted_key_with_a_wrong_or_missing_password_is_rejected(
    alice: KeyAndCertificate, change: dict[str, Any], problem: str
) -> None:
    given = {**key_options(alice, "encrypted"), **change}
    with pytest.raises(ConfigurationError, match=f"ssl.certificate.location: .*{problem}") as found:
        TlsContexts(config(given)).context()
    assert "planted" not in str(found.value)


def test_a_key_that_does_not_match_the_certificate_is_rejected(
    alice: KeyAndCertificate, broker: KeyAndCertificate
) -> None:
    given = {"ssl_certfile": str(alice.certificate), "ssl_keyfile": str(broker.key)}
    with pytest.raises(ConfigurationError, match="certificate doesn't match the private key"):
        TlsContexts(config(given)).context()


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.protocol": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, "TLSv1.2"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "TLSv1.3"),
    ],
)
def test_the_options_limit_the_negotiated_tls_version(
    authority: Authority, broker: KeyAndCertificate, given: dict[str, Any], version: str
) -> None:
    made = TlsContexts(config({"ssl_cafile": str(authority.certificate), **given})).context()
    assert shake(made, server_context(broker)).version() == version
    other = server_context(broker)
    if version == "TLSv1.2":
        other.minimum_version = Version.TLSv1_3
    else:
        other.maximum_version = Version.TLSv1_2
    if given.get("ssl.protocol") != "TLSv1.3" and given:
        with pytest.raises(ssl.SSLError):
            shake(made, other)


def test_cipher_suites_are_accepted_by_their_java_or_openssl_names(
    authority: Authority, broker: KeyAndCertificate, caplog: pytest.LogCaptureFixture
) -> None:
    for suites in (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        "TLS_NO_WITH_SUCH, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-ECDSA-CHACHA20-POLY1305:!aNULL",
    ):
        client = trusting(authority, ssl__protocol="TLSv1.2", ssl__cipher__suites=suites)
        found = shake(client, server_context(broker)).cipher()
        assert found is not None
        assert found[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert "TLS_NO_WITH_SUCH isn't supported" in caplog.text


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ssl.cipher.suites": "TLS_NO_WITH_SUCH"}, "supports none of TLS_NO_WITH_SUCH"),
        ({"ssl.cipher.suites": "NO:SUCH"}, "OpenSSL rejects 'NO:SUCH'"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "older versions aren't supported"),
        ({"ssl.enabled.protocols": "TLSv9"}, "TLSV9 is unknown"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "exclude every version"),
        ({"ssl.truststore.location": "/nowhere"}, "ssl.truststore.location: /nowhere: it can't"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location: /nowhere: it can't"),
    ],
)
def test_invalid_tls_settings_are_rejected(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        TlsContexts(config(given)).context()


# Files that change


def test_changed_certificates_are_loaded_once_the_file_is_complete(
    authority: Authority,
    other: Authority,
    broker: KeyAndCertificate,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "trust.pem"
    path.write_bytes(authority.certificate.read_bytes())
    contexts = TlsContexts(config({"ssl.ca.location": str(path)}))
    first = contexts.context()
    assert contexts.context() is first
    path.write_bytes(other.certificate.read_bytes()[:300])  # half written
    assert contexts.context() is first
    assert contexts.context() is first
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"ssl.truststore.location: {path}" in record.getMessage()
    path.unlink()
    assert contexts.context() is first
    new = tmp_path / "new.pem"
    new.write_bytes(other.certificate.read_bytes())
    new.rename(path)
    second = contexts.context()
    assert second is not first
    assert contexts.context() is second
    assert "reloaded" in caplog.records[-1].getMessage()
    shake(first, server_context(broker))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(second, server_context(broker))


def test_loading_a_changed_file_is_retried_after_a_transient_failure(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "trust.pem"
    path.write_bytes(authority.certificate.read_bytes())
    contexts = TlsContexts(config({"ssl.ca.location": str(path)}))
    first = contexts.context()
    path.write_bytes(authority.certificate.read_bytes() + b"\n")

    def short(*_: object) -> ssl.SSLContext:
        raise OSError("no descriptor is left: planted")

    with monkeypatch.context() as patched:
        patched.setattr("odradek.runtime.tls.tls_context.build", short)
        for _ in range(3):
            assert contexts.context() is first
    (record,) = caplog.records
    assert record.getMessage().endswith("continues with its previous content: OSError")
    assert contexts.context() is not first


def test_a_new_certificate_is_used_once_its_key_has_also_been_replaced(
    alice: KeyAndCertificate, authority: Authority, tmp_path: Path
) -> None:
    later = authority.issue("alice-2")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_bytes(alice.certificate.read_bytes())
    key.write_bytes(alice.key.read_bytes())
    contexts = TlsContexts(config({"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}))
    first = contexts.context()
    certificate.write_bytes(later.certificate.read_bytes())
    assert contexts.context() is first  # the key isn't replaced yet
    key.write_bytes(later.key.read_bytes())
    assert contexts.context() is not first


def test_an_unreadable_file_raises_until_it_is_repaired(
    authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "trust.pem"
    path.write_bytes(b"-----BEGIN ")
    contexts = TlsContexts(config({"ssl.ca.location": str(path)}))
    with pytest.raises(ConfigurationError):
        contexts.context()
    path.write_bytes(authority.certificate.read_bytes())
    contexts.context()


# How clients use TLS contexts


def test_clients_use_tls_according_to_security_protocol_and_ssl_context(
    authority: Authority,
) -> None:
    given = {"bootstrap.servers": "b:1", "ssl.ca.location": str(authority.certificate)}
    assert tls_source(Config(ADMIN, {"bootstrap.servers": "b:1"})) is None
    source = tls_source(config(given))
    assert source is not None
    assert source().check_hostname
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    source = tls_source(config({"ssl_context": own}))
    assert source is not None
    assert source() is own


@pytest.mark.parametrize("make", [odradek.Producer, odradek.Consumer, odradek.Admin])
def test_certificate_files_are_read_when_a_client_is_created(make: Any) -> None:
    given = {"bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl_cafile": "/nowhere"}
    with pytest.raises(ConfigurationError, match="ssl.truststore.location: /nowhere"):
        make(given)


@pytest.mark.parametrize("kind", ["location", "store", "pem"])
def test_token_servers_are_trusted_according_to_the_https_ca_options(
    authority: Authority, broker: KeyAndCertificate, kind: str
) -> None:
    given: Any = {
        "location": {"location": str(authority.certificate)},
        "store": {"location": authority.truststore("PKCS12"), "password": STORE_PASSWORD},
        "pem": {"pem": authority.certificate.read_text()},
    }[kind]
    made = https_context(config({f"https.ca.{name}": value for name, value in given.items()}))
    shake(made, server_context(broker))


def test_changed_certificates_for_token_servers_are_loaded_once_the_file_is_complete(
    authority: Authority, other: Authority, broker: KeyAndCertificate, tmp_path: Path
) -> None:
    path, server = tmp_path / "trust.pem", server_context(broker)
    path.write_bytes(authority.certificate.read_bytes())
    source = https_source(config({"https.ca.location": str(path)}))
    shake(source(), server)
    path.write_bytes(other.certificate.read_bytes()[:100])  # half written
    shake(source(), server)
    path.write_bytes(other.certificate.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(source(), server)


def test_the_systems_certificates_are_read_for_each_use_of_a_token_server() -> None:
    source = https_source(config({}))
    assert source() is not source()


@pytest.mark.parametrize("kind", [SelectorHost, ThreadHost])
def test_new_connections_use_changed_certificate_files_and_open_connections_continue(
    kind: type[SelectorHost | ThreadHost],
    engine: ScriptedEngine,
    authority: Authority,
    other: Authority,
    broker: KeyAndCertificate,
    alice: KeyAndCertificate,
    tmp_path: Path,
) -> None:
    path = tmp_path / "trust.pem"
    path.write_bytes(authority.certificate.read_bytes())
    given = {"ssl.ca.location": str(path), **key_options(alice, "PKCS12")}
    host = kind(tls=tls_source(config(given)))
    host.attach(engine)
    with peer(echo, server_context(broker, authority)) as running:
        old = engine.open(running.port, host="localhost")
        engine.send(old, b"one")
        run(host, engine.expect(old, 3))
        path.write_bytes(other.certificate.read_bytes())
        new = engine.open(running.port, host="localhost")
        lost = run(host, engine.down[new]).result()
        assert isinstance(lost, ssl.SSLCertVerificationError)
        engine.send(old, b"two")  # open connections aren't affected
        run(host, engine.expect(old, 6))
        host.close(host.now() + 1.0)


def test_a_connection_attempt_fails_if_its_tls_context_cannot_be_created(
    engine: ScriptedEngine,
) -> None:
    def broken() -> ssl.SSLContext:
        raise ConfigurationError("no context today")

    made = SelectorHost(tls=broken)
    made.attach(engine)
    connection = engine.open(1, host="localhost")
    assert isinstance(run(made, engine.down[connection]).result(), ConfigurationError)
    made.close(made.now())


def test_a_certificate_with_a_host_name_only_as_its_common_name_is_rejected(tmp_path: Path) -> None:
    """RFC 9525; if names aren't checked, the same handshake succeeds."""
    own = Authority(tmp_path, "localhost")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(own.certificate, tmp_path / "authority-key.pem")
    shake(trusting(own, **ANY_NAME), theirs)
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake(trusting(own), theirs)
    error = as_error(caught.value, setting_up=True, address=Address("b", 1))
    assert type(error) is HostNameMismatchError
    assert "subjectAltName" in str(error)


def test_a_host_name_with_a_trailing_dot_matches_its_certificate(
    engine: ScriptedEngine, authority: Authority, broker: KeyAndCertificate
) -> None:
    host = SelectorHost(tls=tls_source(config({"ssl.ca.location": str(authority.certificate)})))
    host.attach(engine)
    with peer(echo, server_context(broker)) as running:
        connection = engine.open(running.port, host="localhost.")
        engine.send(connection, b"one")
        run(host, engine.expect(connection, 3))
    host.close(host.now() + 1.0)
