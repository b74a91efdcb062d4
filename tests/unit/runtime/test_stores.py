"""Stores of keys and certificates: PEM, PKCS12, JKS, as keytool and openssl write them.

Whatever a file holds, the outcome is a store or a `ConfigurationError` that names option and file.
"""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.keytool import keytool

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.tls.stores import StoreSource, _blocks, certificates_of, own_key, trusted
from odradek.testing.authority import STORE_PASSWORD, Authority, KeyAndCertificate

pytestmark = pytest.mark.slow  # keytool is a JVM each time
PASSWORD = Secret(STORE_PASSWORD)
KEY_PASSWORD = "another-one"  # noqa: S105  of a test store


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def alice(authority: Authority) -> KeyAndCertificate:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def stores(authority: Authority, alice: KeyAndCertificate) -> dict[str, Path]:
    """Key stores of each kind; `two` is a JKS whose key has a password of its own."""
    two = authority.directory / "two.jks"
    keytool(
        *("-importkeystore", "-srckeystore", str(alice.keystore("PKCS12"))),
        *("-srcstorepass", STORE_PASSWORD, "-srcalias", "alice", "-deststoretype", "JKS"),
        *("-destkeystore", str(two), "-deststorepass", STORE_PASSWORD),
        *("-destkeypass", KEY_PASSWORD),
    )
    return {
        "PEM": alice.keystore("PEM"),
        "PKCS12": alice.keystore("PKCS12"),
        "JKS": alice.keystore("JKS"),
        "two": two,
    }


@pytest.fixture(scope="module")
def quick(authority: Authority, alice: KeyAndCertificate) -> Path:
    """A PKCS12 store that is decrypted quickly."""
    encryption = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).hmac_hash(SHA256())
    key = load_pem_private_key(alice.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    own, *others = x509.load_pem_x509_certificates(alice.certificate.read_bytes())
    path = authority.directory / "quick.p12"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"alice", key, own, others, encryption.build(STORE_PASSWORD.encode())
        )
    )
    return path


def key_source(
    path: Path, password: Secret | None = PASSWORD, key: str | None = None
) -> StoreSource:
    secret = None if key is None else Secret(key)
    return StoreSource("ssl.keystore.location", str(path), password, secret)


def der(path: Path) -> bytes:
    return x509.load_pem_x509_certificates(path.read_bytes())[0].public_bytes(Encoding.DER)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS", "two"])
def test_keys(stores: dict[str, Path], alice: KeyAndCertificate, kind: str) -> None:
    key = KEY_PASSWORD if kind == "two" else None
    found = own_key(key_source(stores[kind], None if kind == "PEM" else PASSWORD, key)).reveal()
    numbers = load_pem_private_key(found.encode(), None).private_numbers()  # type: ignore[union-attr]
    wanted = load_pem_private_key(alice.key.read_bytes(), None).private_numbers()  # type: ignore[union-attr]
    assert numbers == wanted
    chain = certificates_of(found, "here")
    assert chain == certificates_of(alice.certificate.read_text(), "there")


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_trust(authority: Authority, kind: str) -> None:
    path = authority.truststore(kind)  # type: ignore[arg-type]
    found = trusted(StoreSource("ssl.truststore.location", str(path), PASSWORD))
    assert found == [der(authority.certificate)]


def test_a_trust_store_of_jks_needs_no_password(authority: Authority) -> None:
    path = authority.truststore("JKS")
    assert trusted(StoreSource("ssl.truststore.location", str(path))) == [
        der(authority.certificate)
    ]


def test_java_names_the_file_as_it_likes(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(authority.truststore("PKCS12").read_bytes())
    assert trusted(StoreSource("ssl.truststore.location", str(path), PASSWORD))


def test_what_keytool_adds_is_read(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "several.p12"
    path.write_bytes(authority.truststore("PKCS12").read_bytes())
    other = Authority(tmp_path / "other", "Another")
    keytool(
        *("-importcert", "-alias", "b", "-file", str(other.certificate)),
        *("-keystore", str(path), "-storepass", STORE_PASSWORD),
    )
    found = trusted(StoreSource("ssl.truststore.location", str(path), PASSWORD))
    assert sorted(found) == sorted([der(authority.certificate), der(other.certificate)])


def test_words_between_certificates_are_passed_over(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "bundle.pem"
    path.write_bytes("# Société Générale\n".encode("latin-1") + authority.certificate.read_bytes())
    assert trusted(StoreSource("ssl.truststore.location", str(path))) == [
        der(authority.certificate)
    ]


def test_wrong_passwords_name_the_option(stores: dict[str, Path]) -> None:
    wrong = Secret("planted-wrong")
    for kind in ("PKCS12", "JKS"):
        with pytest.raises(ConfigurationError, match=r"password is wrong.*ssl.keystore.password"):
            own_key(key_source(stores[kind], wrong))
    for kind in ("PKCS12", "JKS"):
        with pytest.raises(ConfigurationError, match=r"\(option ssl.keystore.password\)"):
            own_key(key_source(stores[kind], None))
    with pytest.raises(ConfigurationError, match=r"key's password is wrong.*ssl.key.password"):
        own_key(key_source(stores["two"], PASSWORD, "planted-wrong"))
    with pytest.raises(ConfigurationError, match="doesn't go with PEM.*ssl.key.password"):
        own_key(key_source(stores["PEM"], wrong))


def test_what_is_no_store(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "x"
    source = StoreSource("ssl.truststore.location", str(path), PASSWORD)
    with pytest.raises(ConfigurationError, match="ssl.truststore.location: .*No such file"):
        trusted(source)
    for data, problem in (
        (b"", "is empty"),
        (b"hello", "neither PEM nor PKCS12 nor JKS"),
        (b"\xce\xce\xce\xce\0\0\0\2", "of the kind JCEKS.*-deststoretype PKCS12"),
        (b"\x30\x03\x02\x01\x03", "broken"),
        (b"-----BEGIN EC KEY-----", "no certificate in it"),
        (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", "certificate 1 isn't PEM"),
    ):
        path.write_bytes(data)
        with pytest.raises(ConfigurationError, match=problem):
            trusted(source)
    path.write_bytes(authority.certificate.read_bytes())
    with pytest.raises(ConfigurationError, match="no private key in it"):
        own_key(key_source(path, None))
    with pytest.raises(ConfigurationError, match="no private key in it"):
        own_key(key_source(authority.truststore("PKCS12")))
    with pytest.raises(ConfigurationError, match="it isn't a file"):
        trusted(StoreSource("ssl.truststore.location", str(tmp_path)))


def test_old_encryption_of_pkcs12(alice: KeyAndCertificate, tmp_path: Path) -> None:
    """3DES, as keytool of Java 8 wrote it, is read; RC2 too, or refused with a cure."""
    path = tmp_path / "old.p12"
    subprocess.run(
        [
            *("openssl", "pkcs12", "-export", "-legacy", "-inkey", alice.key),
            *("-in", alice.certificate, "-out", path, "-passout", f"pass:{STORE_PASSWORD}"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    try:
        found = own_key(key_source(path)).reveal()
    except ConfigurationError as error:
        found = str(error)
    assert "PRIVATE KEY" in found or "can write it anew" in found


def test_a_key_that_everybody_can_read_is_warned_of_once(
    alice: KeyAndCertificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "key.pem"
    path.write_bytes(alice.both.read_bytes())
    path.chmod(0o640)
    own_key(key_source(path, None))
    assert not caplog.records
    path.chmod(0o644)
    for _ in range(2):
        own_key(key_source(path, None))
    (record,) = caplog.records
    assert f"{path} holds a private key that isn't encrypted" in record.getMessage()
    other = tmp_path / "encrypted.pem"
    other.write_bytes(alice.encrypted_key(KEY_PASSWORD).read_bytes())
    other.chmod(0o644)
    own_key(key_source(other, None))
    assert len(caplog.records) == 1


def loads(source: StoreSource) -> None:
    """What a client does with a store; a broken one may pass as long as OpenSSL can take it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for certificate in trusted(source):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            return


@settings(max_examples=40, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["JKS", "PKCS12", "PEM"]), keys=st.booleans())
def test_a_broken_store_is_a_configuration_error(
    stores: dict[str, Path],
    quick: Path,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    kind: str,
    keys: bool,
) -> None:
    path = quick if kind == "PKCS12" else stores[kind] if keys else authority.truststore(kind)  # type: ignore[arg-type]
    whole = path.read_bytes()
    broken = bytearray(whole)
    if data.draw(st.booleans()):
        del broken[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        # Not the lengths and counts of an iterated key: a hostile count only takes its time.
        for _ in range(data.draw(st.integers(1, 3))):
            broken[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "broken-store"
    path.write_bytes(broken)
    password = data.draw(st.sampled_from([PASSWORD, None])) if kind != "PEM" else None
    source = StoreSource(f"ssl.{'key' if keys else 'trust'}store.location", str(path), password)
    try:
        own_key(source) if keys else loads(source)
        problem = ""
    except ConfigurationError as error:
        problem = str(error)
    assert not problem or problem.startswith(f"{source.option}: {path}: ")


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN A-----\n-----END B-----\n",
        "-----BEGIN " + "A" * 64 + "\n",
        "-----BEGIN X-----Proc-Type: 4\n",
    ],
)
def test_what_beginnings_without_ends_cost_grows_with_their_number_only(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """108 KB of them took 7 s. What is counted are the texts that are looked through for an end."""
    looked: list[int] = []

    class Counting(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            found = super().__getitem__(key)
            looked.append(len(found))
            return found

    text = Counting(piece * (108_000 // len(piece)))
    assert list(_blocks(text)) == []
    assert sum(looked) <= len(text)
    with pytest.raises(ConfigurationError, match="there is no certificate"):
        certificates_of(text, "here")


def test_a_beginning_within_a_block_begins_anew() -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = f"{begin}\nAAAA{begin}\nQUJD\n{end}"
    assert certificates_of(text, "here") == [b"ABC"]
    mixed = "-----BEGIN TRUSTED CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----"
    assert certificates_of(mixed, "here") == [b"ABC"]
