"""Certificates for tests, and handshakes in memory that show OpenSSL's own errors."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "broker.test"


@dataclass(frozen=True)
class Issuer:
    """An authority that signs what a test asks for."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    directory: Path

    @property
    def pem(self) -> str:
        """What its clients trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, label: str, name: str = NAME, *, days: tuple[int, int] = (-1, 1)) -> Path:
        """A file with a key and a certificate for a name, valid in these days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = _builder(name, self.certificate.subject, key, days).add_extension(names, False)
        return self._save(label, made.sign(self.key, hashes.SHA256()), key)

    def _save(self, label: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self.directory / f"{label}.pem"
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
        path.chmod(0o600)
        return path


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def issuer(directory: Path, name: str = "authority") -> Issuer:
    """A new authority whose files lie in a directory."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    basic = x509.BasicConstraints(ca=True, path_length=None)
    made = _builder(name, subject, key, (-9, 9)).add_extension(basic, True)
    return Issuer(made.sign(key, hashes.SHA256()), key, directory)


def server_context(certificate: Path) -> ssl.SSLContext:
    """A broker that shows a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


class Ends:
    """Both ends of a TLS connection, in memory."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext, name: str = NAME) -> None:
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.to_client, self.to_server, server_hostname=name)
        self.server = server.wrap_bio(self.to_server, self.to_client, server_side=True)

    def client_error(self) -> ssl.SSLError | None:
        """Shake hands, ask one thing, and give what the client gets to see of a refusal."""
        refused, done = False, False
        for _ in range(8):
            try:
                if not done:
                    self.client.do_handshake()
                    done = True
                    self.client.write(b"question")
                self.client.read(1)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error
            if not refused:
                refused = self._serve()
        return None

    def _serve(self) -> bool:
        """Let the server go on; say whether it has refused."""
        try:
            self.server.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        return False
