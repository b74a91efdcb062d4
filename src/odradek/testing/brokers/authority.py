"""A certificate authority for tests: keys and certificates in every form that Kafka clients read.

In: a directory, names and addresses. Out: files in PEM, PKCS12 and JKS. Must not: be trusted
outside of tests, because its private key is stored next to the certificates that it issues.

It uses elliptic-curve keys: generating an RSA key takes longer than starting a broker.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from odradek.testing.errors import ToolError
from odradek.testing.java import java_home

Kind = Literal["PEM", "PKCS12", "JKS"]

STORE_PASSWORD = "store-password"  # noqa: S105 - of test stores, which aren't secret
_SUFFIXES = {"PEM": ".pem", "PKCS12": ".p12", "JKS": ".jks"}
_KEYTOOL_TIMEOUT_S = 60.0
_DAY = datetime.timedelta(days=1)
# New certificates must already be valid for clients whose clock is a little slow.
_SLACK = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyAndCertificate:
    """A private key and its certificate, as files."""

    name: str
    certificate: Path
    """The certificate, followed by its authority's certificate, in PEM."""
    key: Path
    """The private key in PEM (PKCS8), not encrypted."""
    both: Path
    """The key and both certificates in one PEM file, as Kafka's PEM key stores need it."""

    def encrypted_key(self, password: str) -> Path:
        """Write the key to another file, encrypted, and return the file's path."""
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        data = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return _write(self.key.with_name(f"{self.name}-encrypted-key.pem"), data)

    def keystore(self, kind: Kind, password: str = STORE_PASSWORD) -> Path:
        """Return the path of a key store of this kind; the first call creates the file."""
        if kind == "PEM":
            return self.both
        path = self.key.with_name(f"{self.name}{_SUFFIXES[kind]}")
        if kind == "JKS":
            _to_jks(self.keystore("PKCS12", password), path, password)
            return path
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.key} doesn't contain the key of this authority")
        own, *others = x509.load_pem_x509_certificates(self.certificate.read_bytes())
        data = pkcs12.serialize_key_and_certificates(
            self.name.encode(),
            key,
            own,
            others,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return _write(path, data)


class Authority:
    """Certificate authority; its own certificate is in `certificate` (PEM).

    If the directory contains the key and certificate of an earlier run, they are reused.
    """

    def __init__(self, directory: Path, name: str = "Odradek test authority") -> None:
        self.directory = directory
        self.certificate = directory / "authority.pem"
        key_file = directory / "authority-key.pem"
        directory.mkdir(parents=True, exist_ok=True)
        if self.certificate.is_file() and key_file.is_file():
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError(f"{key_file} doesn't contain the key of a test authority")
            self._key = key
            self._own = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        today = datetime.datetime.now(datetime.UTC)
        self._own = (
            _builder(subject, subject, self._key.public_key(), today - _DAY, today + 3650 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        _write(key_file, _pem_of(self._key))
        _write(self.certificate, self._own.public_bytes(serialization.Encoding.PEM), mode=0o644)

    def issue(
        self,
        name: str,
        *,
        hosts: Iterable[str] = (),
        starts: datetime.datetime | None = None,
        ends: datetime.datetime | None = None,
        directory: Path | None = None,
    ) -> KeyAndCertificate:
        """Issue a key and a certificate for `name`, for a server if `hosts` are given.

        `hosts` are host names and addresses; `starts` and `ends` allow certificates that have
        expired or aren't valid yet. Replaces the files of an earlier certificate with this name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        found = [_host(one) for one in dict.fromkeys(hosts)]
        use = ExtendedKeyUsageOID.SERVER_AUTH if found else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(
            subject,
            self._own.subject,
            key.public_key(),
            starts or now - _SLACK,
            ends or now + 365 * _DAY,
        )
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if found:
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        chain = b"".join(
            one.public_bytes(serialization.Encoding.PEM) for one in (certificate, self._own)
        )
        folder = directory or self.directory
        folder.mkdir(parents=True, exist_ok=True)
        return KeyAndCertificate(
            name,
            _write(folder / f"{name}.pem", chain, mode=0o644),
            _write(folder / f"{name}-key.pem", _pem_of(key)),
            _write(folder / f"{name}-both.pem", _pem_of(key) + chain),
        )

    def truststore(self, kind: Kind, password: str = STORE_PASSWORD) -> Path:
        """Return the path of a trust store of this kind with the authority's certificate."""
        if kind == "PEM":
            return self.certificate
        path = self.directory / f"truststore{_SUFFIXES[kind]}"
        if kind == "JKS":
            _to_jks(self.truststore("PKCS12", password), path, password)
            return path
        trusted = pkcs12.PKCS12Certificate(self._own, b"authority")
        encryption = serialization.BestAvailableEncryption(password.encode())
        return _write(path, pkcs12.serialize_java_truststore([trusted], encryption))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    starts: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Replace a file atomically: a concurrent reader gets the old or the new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)
    return path


def _to_jks(source: Path, target: Path, password: str) -> None:
    """Convert a PKCS12 store with Java's keytool, which every Java runtime contains."""
    target.unlink(missing_ok=True)
    command = [
        str(java_home() / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "sun.security.tools.keytool.Main", "-importkeystore", "-noprompt",
        "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", password,
        "-destkeystore", str(target), "-deststoretype", "JKS", "-deststorepass", password,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_KEYTOOL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise ToolError(f"keytool can't write {target}:\n{done.stdout}{done.stderr}")
    target.chmod(0o600)
