"""Test key and trust stores in PEM, PKCS12 and JKS that keytool and openssl have written.

Reading any file returns a store or raises a `ConfigurationError` that names option and file.
"""

from __future__ import annotations

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
from tests.time_limits import HANG_S
from tests.unit.runtime.keytool import keytool
from tests.volume import WHOLE, examples

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.tls.pkcs12_keys import without_keys
from odradek.runtime.tls.stores import StoreSource, certificates_of, own_key, pem_blocks, trusted
from odradek.testing.brokers.authority import STORE_PASSWORD, Authority, KeyAndCertificate, Kind
from odradek.testing.java import java_home

pytestmark = pytest.mark.slow  # each call of keytool starts a JVM
PASSWORD = Secret(STORE_PASSWORD)
KEY_PASSWORD = "another-one"  # noqa: S105  of a test store


def import_into(path: Path, authority: Authority) -> Path:
    """Add an authority's certificate to a store."""
    keytool(
        *("-importcert", "-alias", "b", "-file", str(authority.certificate)),
        *("-keystore", str(path), "-storepass", STORE_PASSWORD),
    )
    return path


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=HANG_S)


@pytest.fixture(scope="module")
def stores(authority: Authority, alice: KeyAndCertificate) -> dict[str, Path]:
    """Create a key store of each kind; `two` is a JKS whose key has a different password."""
    two = authority.directory / "two.jks"
    keytool(
        *("-importkeystore", "-srckeystore", str(alice.keystore("PKCS12"))),
        *("-srcstorepass", STORE_PASSWORD, "-srcalias", "alice", "-deststoretype", "JKS"),
        *("-destkeystore", str(two), "-deststorepass", STORE_PASSWORD),
        *("-destkeypass", KEY_PASSWORD),
    )
    kinds: tuple[Kind, ...] = ("PEM", "PKCS12", "JKS")
    return {**{kind: alice.keystore(kind) for kind in kinds}, "two": two}


@pytest.fixture(scope="module")
def quick(authority: Authority, alice: KeyAndCertificate) -> Path:
    """Create a PKCS12 store that is decrypted quickly."""
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


def trust_source(path: Path, password: Secret | None = PASSWORD) -> StoreSource:
    return StoreSource("ssl.truststore.location", str(path), password)


def der(path: Path) -> list[bytes]:
    found = x509.load_pem_x509_certificates(path.read_bytes())
    return [one.public_bytes(Encoding.DER) for one in found]


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS", "two"])
def test_key_and_chain_are_read_from_every_kind_of_store(
    stores: dict[str, Path], alice: KeyAndCertificate, kind: str
) -> None:
    key = KEY_PASSWORD if kind == "two" else None
    found = own_key(key_source(stores[kind], None if kind == "PEM" else PASSWORD, key)).reveal()
    numbers = load_pem_private_key(found.encode(), None).private_numbers()  # type: ignore[union-attr]
    wanted = load_pem_private_key(alice.key.read_bytes(), None).private_numbers()  # type: ignore[union-attr]
    assert numbers == wanted
    chain = certificates_of(found, "here")
    assert chain == certificates_of(alice.certificate.read_text(), "there")


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS", "JKS without a password"])
def test_trusted_certificates_are_read_from_every_kind_of_store(
    authority: Authority, kind: str
) -> None:
    path = authority.truststore(kind.split()[0])  # type: ignore[arg-type]
    password = None if "without" in kind else PASSWORD
    assert trusted(trust_source(path, password)) == der(authority.certificate)


def test_a_store_is_read_regardless_of_its_file_name(
    authority: Authority, other: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(authority.truststore("PKCS12").read_bytes())
    found = trusted(trust_source(import_into(path, other)))
    assert sorted(found) == sorted(der(authority.certificate) + der(other.certificate))


def test_text_between_certificates_is_ignored(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "bundle.pem"
    path.write_bytes("# Société Générale\n".encode("latin-1") + authority.certificate.read_bytes())
    assert trusted(trust_source(path, None)) == der(authority.certificate)


@pytest.mark.parametrize(
    ("kind", "password", "key", "problem"),
    [
        ("PKCS12", "planted-wrong", None, "password is wrong.*ssl.keystore.password"),
        ("JKS", "planted-wrong", None, "password is wrong.*ssl.keystore.password"),
        ("PKCS12", None, None, r"\(option ssl.keystore.password\)"),
        ("JKS", None, None, r"\(option ssl.keystore.password\)"),
        ("two", STORE_PASSWORD, None, "key's password is wrong.*ssl.key.password"),
        ("two", STORE_PASSWORD, "planted-wrong", "key's password is wrong.*ssl.key.password"),
        ("PEM", "planted-wrong", None, "can't be used with PEM.*ssl.key.password"),
    ],
)
def test_the_error_for_a_wrong_password_names_the_option(
    stores: dict[str, Path], kind: str, password: str | None, key: str | None, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        own_key(key_source(stores[kind], Secret(password) if password else None, key))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "ssl.truststore.location: .*No such file"),
        (b"", "is empty"),
        (b"hello", "neither PEM nor PKCS12 nor JKS"),
        (b"\xce\xce\xce\xce\0\0\0\2", "a JCEKS store.*-deststoretype PKCS12"),
        (b"\x30\x03\x02\x01\x03", "corrupt"),
        (b"-----BEGIN EC KEY-----", "contains no certificate"),
        (
            b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
            "certificate 1 isn't valid PEM",
        ),
    ],
)
def test_the_error_for_an_invalid_store_names_the_problem(
    tmp_path: Path, data: bytes | None, problem: str
) -> None:
    path = tmp_path / "x"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=problem):
        trusted(trust_source(path))


def test_a_key_store_without_a_key_and_a_folder_as_trust_store_are_rejected(
    authority: Authority, tmp_path: Path
) -> None:
    for source in (
        key_source(authority.certificate, None),
        key_source(authority.truststore("PKCS12")),
    ):
        with pytest.raises(ConfigurationError, match="contains no private key"):
            own_key(source)
    with pytest.raises(ConfigurationError, match="it isn't a regular file"):
        trusted(trust_source(tmp_path))


def test_a_pkcs12_with_an_old_encryption_is_read_or_rejected_with_a_command(
    alice: KeyAndCertificate, tmp_path: Path
) -> None:
    """3DES, which Java 8's keytool used, is read; RC2 is read or rejected with a command."""
    path = tmp_path / "old.p12"
    openssl(
        *("pkcs12", "-export", "-legacy", "-inkey", alice.key),
        *("-in", alice.certificate, "-out", path, "-passout", f"pass:{STORE_PASSWORD}"),
    )
    try:
        found = own_key(key_source(path)).reveal()
    except ConfigurationError as error:
        found = str(error)
    assert "PRIVATE KEY" in found or "openssl pkcs12" in found


def test_a_private_key_that_everyone_can_read_causes_one_warning(
    alice: KeyAndCertificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, encrypted = tmp_path / "key.pem", alice.encrypted_key(KEY_PASSWORD)
    for mode, key in ((0o640, alice.both), (0o644, alice.both), (0o644, encrypted)):
        path.write_bytes(key.read_bytes())
        path.chmod(mode)
        for _ in range(2):
            own_key(key_source(path, None))
        assert len(caplog.records) == (mode == 0o644)
    assert f"{path} contains an unencrypted private key" in caplog.text


def loads(source: StoreSource) -> None:
    """Load a store as a client does; only OpenSSL may detect that a certificate is corrupt."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for certificate in trusted(source):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            return


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), kind=st.sampled_from(["JKS", "PKCS12", "PEM"]), keys=st.booleans())
def test_a_corrupt_store_raises_a_configuration_error_or_is_read(
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
        # Any byte may change, also the iteration count of the key derivation (1 in `quick`).
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
def test_pem_headers_without_ends_are_searched_in_linear_time(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """108 KB of headers once took 7 s. The test counts the characters that are searched."""
    looked: list[int] = []

    class Counting(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            found = super().__getitem__(key)
            looked.append(len(found))
            return found

    text = Counting(piece * (108_000 // len(piece)))
    assert list(pem_blocks(text)) == []
    assert sum(looked) <= len(text)
    with pytest.raises(ConfigurationError, match="it contains no certificate"):
        certificates_of(text, "here")


def test_a_pem_header_within_a_block_starts_a_new_block() -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = f"{begin}\nAAAA{begin}\nQUJD\n{end}"
    assert certificates_of(text, "here") == [b"ABC"]
    mixed = "-----BEGIN TRUSTED CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----"
    assert certificates_of(mixed, "here") == [b"ABC"]


# Trust stores that also contain a private key, which isn't decrypted, as in Java


@pytest.fixture(scope="module")
def mixed(
    stores: dict[str, Path], other: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Create a JKS with an authority's certificate, and a key with a different password."""
    path = tmp_path_factory.mktemp("mixed") / "mixed.jks"
    path.write_bytes(stores["two"].read_bytes())
    return import_into(path, other)


@pytest.mark.parametrize("password", [PASSWORD, None], ids=["password", "no password"])
def test_the_private_key_in_a_jks_truststore_is_not_decrypted(
    mixed: Path, alice: KeyAndCertificate, other: Authority, password: Secret | None
) -> None:
    own, *issuers = der(alice.certificate)
    assert issuers  # of the key's chain, only the first certificate is trusted, as in Java
    assert set(trusted(trust_source(mixed, password))) == {*der(other.certificate), own}
    with pytest.raises(ConfigurationError, match=r"ssl.truststore.password"):
        trusted(trust_source(mixed, Secret("wrong")))


def test_certificates_of_a_pkcs12_with_a_key_without_a_certificate_are_trusted(
    alice: KeyAndCertificate, other: Authority, tmp_path: Path
) -> None:
    """`openssl pkcs12 -export` writes such a store if the key doesn't match the certificates."""
    path = tmp_path / "odd.p12"
    openssl(
        *("pkcs12", "-export", "-inkey", alice.key, "-nocerts", "-out", path),
        *("-passout", f"pass:{STORE_PASSWORD}"),
    )
    assert trusted(trust_source(import_into(path, other))) == der(other.certificate)


TWO_IN_ONE = """
import java.io.*;
import java.security.*;

public class OtherPassword {
    public static void main(String[] words) throws Exception {
        char[] one = words[2].toCharArray(), other = words[3].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = new FileInputStream(words[0])) { store.load(in, one); }
        Key key = store.getKey("alice", one);
        store.setKeyEntry("alice", key, other, store.getCertificateChain("alice"));
        try (OutputStream out = new FileOutputStream(words[1])) { store.store(out, one); }
    }
}
"""


@pytest.fixture(scope="module")
def of_two_passwords(alice: KeyAndCertificate, other: Authority) -> Path:
    """Create a PKCS12 with Java, since keytool can't set a different password for the key."""
    folder = other.directory
    source, path = folder / "OtherPassword.java", folder / "two.p12"
    source.write_text(TWO_IN_ONE)
    words = [str(alice.keystore("PKCS12")), str(path), STORE_PASSWORD, KEY_PASSWORD]
    java = java_home() / "bin" / "java"
    subprocess.run([java, source, *words], check=True, capture_output=True, timeout=HANG_S)
    return import_into(path, other)


def test_the_private_key_in_a_pkcs12_truststore_may_have_another_password(
    of_two_passwords: Path, alice: KeyAndCertificate, other: Authority, tmp_path: Path
) -> None:
    path, changed = of_two_passwords, tmp_path / "changed.p12"
    found = trusted(trust_source(path))
    assert set(found) == {*der(other.certificate), *der(alice.certificate)}
    with pytest.raises(ConfigurationError, match=r"ssl.truststore.password"):
        trusted(trust_source(path, Secret("wrong")))
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    changed.write_bytes(data)
    with pytest.raises(ConfigurationError, match="its password is wrong, or the file is corrupt"):
        trusted(trust_source(changed))
    with pytest.raises(ConfigurationError):
        own_key(key_source(path))


def test_a_truncated_pkcs12_is_not_parsed(of_two_passwords: Path) -> None:
    data = of_two_passwords.read_bytes()
    assert without_keys(data, PASSWORD) is not None
    for end in range(0, len(data), 13 if WHOLE else 67):
        assert without_keys(data[:end], PASSWORD) is None
