"""Trust stores that hold a private key as well: for trust no key is decrypted, as in Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.unit.runtime.keytool import keytool

from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.tls.pkcs12_keys import without_keys
from odradek.runtime.tls.stores import StoreSource, own_key, trusted
from odradek.testing.authority import STORE_PASSWORD, Authority, KeyAndCertificate
from odradek.testing.java import java_home

pytestmark = pytest.mark.slow  # keytool is a JVM each time
PASSWORD = Secret(STORE_PASSWORD)
KEY_PASSWORD = "another-one"  # noqa: S105  of a test store


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def alice(authority: Authority) -> KeyAndCertificate:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "Another")


@pytest.fixture(scope="module")
def mixed(authority: Authority, alice: KeyAndCertificate, other: Authority) -> Path:
    """A JKS with another authority's certificate, and a key with a password of its own."""
    path = authority.directory / "mixed.jks"
    keytool(
        *("-importkeystore", "-srckeystore", str(alice.keystore("PKCS12"))),
        *("-srcstorepass", STORE_PASSWORD, "-srcalias", "alice", "-deststoretype", "JKS"),
        *("-destkeystore", str(path), "-deststorepass", STORE_PASSWORD),
        *("-destkeypass", KEY_PASSWORD),
    )
    keytool(
        *("-importcert", "-alias", "b", "-file", str(other.certificate)),
        *("-keystore", str(path), "-storepass", STORE_PASSWORD),
    )
    return path


def der(path: Path) -> list[bytes]:
    found = x509.load_pem_x509_certificates(path.read_bytes())
    return [one.public_bytes(Encoding.DER) for one in found]


@pytest.mark.parametrize("password", [PASSWORD, None], ids=["with", "without"])
def test_a_key_in_a_jks_isnt_decrypted_for_trust(
    mixed: Path, alice: KeyAndCertificate, other: Authority, password: Secret | None
) -> None:
    found = trusted(StoreSource("ssl.truststore.location", str(mixed), password))
    own, *issuers = der(alice.certificate)
    assert issuers  # the key's chain; Java trusts its first certificate alone, and so do we
    assert set(found) == {*der(other.certificate), own}


def test_it_still_is_for_the_own_key(mixed: Path) -> None:
    with pytest.raises(ConfigurationError, match="key's password is wrong.*ssl.key.password"):
        own_key(StoreSource("ssl.keystore.location", str(mixed), PASSWORD))
    with pytest.raises(ConfigurationError, match=r"ssl.truststore.password"):
        trusted(StoreSource("ssl.truststore.location", str(mixed), Secret("wrong")))


def test_a_pkcs12_whose_key_has_no_certificate_is_trusted_for_the_others(
    alice: KeyAndCertificate, other: Authority, tmp_path: Path
) -> None:
    """`openssl pkcs12 -export` writes one where key and certificates don't belong together."""
    path = tmp_path / "odd.p12"
    subprocess.run(
        [
            *("openssl", "pkcs12", "-export", "-inkey", alice.key, "-nocerts", "-out", path),
            *("-passout", f"pass:{STORE_PASSWORD}"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    keytool(
        *("-importcert", "-alias", "b", "-file", str(other.certificate)),
        *("-keystore", str(path), "-storepass", STORE_PASSWORD),
    )
    found = trusted(StoreSource("ssl.truststore.location", str(path), PASSWORD))
    assert found == der(other.certificate)


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
    """A PKCS12 that Java wrote: keytool can't give a key a password of its own, programs can."""
    folder = other.directory
    source, path = folder / "OtherPassword.java", folder / "two.p12"
    source.write_text(TWO_IN_ONE)
    words = [str(alice.keystore("PKCS12")), str(path), STORE_PASSWORD, KEY_PASSWORD]
    java = java_home() / "bin" / "java"
    subprocess.run([java, source, *words], check=True, capture_output=True, timeout=100)
    keytool(
        *("-importcert", "-alias", "b", "-file", str(other.certificate)),
        *("-keystore", str(path), "-storepass", STORE_PASSWORD),
    )
    return path


def test_a_key_in_a_pkcs12_may_have_another_password(
    of_two_passwords: Path, alice: KeyAndCertificate, other: Authority, tmp_path: Path
) -> None:
    def read(path: Path, password: Secret = PASSWORD) -> list[bytes]:
        return trusted(StoreSource("ssl.truststore.location", str(path), password))

    assert set(read(of_two_passwords)) == {*der(other.certificate), *der(alice.certificate)}
    with pytest.raises(ConfigurationError, match=r"ssl.truststore.password"):
        read(of_two_passwords, Secret("wrong"))
    changed = bytearray(of_two_passwords.read_bytes())
    changed[200] ^= 1
    (tmp_path / "changed.p12").write_bytes(changed)
    with pytest.raises(ConfigurationError, match="its password is wrong, or the file is broken"):
        read(tmp_path / "changed.p12")
    with pytest.raises(ConfigurationError):
        own_key(StoreSource("ssl.keystore.location", str(of_two_passwords), PASSWORD))


def test_a_broken_pkcs12_is_an_error_wherever_it_is_cut(of_two_passwords: Path) -> None:
    data = of_two_passwords.read_bytes()
    assert without_keys(data, PASSWORD) is not None
    for end in range(0, len(data), 13):
        assert without_keys(data[:end], PASSWORD) is None
