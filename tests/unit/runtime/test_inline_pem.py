"""Test PEM text whose line breaks were replaced, as in environment variables and properties."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

from odradek.common.config import ADMIN, Config
from odradek.common.errors import ConfigurationError
from odradek.common.secret import Secret
from odradek.runtime.tls.stores import tidy_pem
from odradek.runtime.tls.tls_context import build
from odradek.testing.brokers.authority import Authority, KeyAndCertificate

KEY_PASSWORD = "key-password"  # noqa: S105  of a test key
Shape = Callable[[str], str]


SHAPES: dict[str, Shape] = {
    "lines": str,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "spaces": lambda text: " ".join(text.split("\n")),
    "nothing": lambda text: text.replace("\n", ""),
    "written": lambda text: text.replace("\n", "\\n"),
}


def settings(key: str, chain: str, trust: str, **more: str) -> Config:
    return Config(
        ADMIN,
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SSL",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.certificates": trust,
            **more,
        },
    )


@pytest.mark.parametrize("name", SHAPES)
def test_keys_and_certificates_are_read_from_pem_with_any_line_separators(
    authority: Authority, alice: KeyAndCertificate, name: str, tmp_path: Path
) -> None:
    shape, old = SHAPES[name], tmp_path / "old.pem"
    words = ("ec", "-in", alice.key, "-aes128", "-out", old, "-passout", f"pass:{KEY_PASSWORD}")
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=HANG_S)
    assert "Proc-Type: 4,ENCRYPTED" in old.read_text()
    chain, trust = (shape(path.read_text()) for path in (alice.certificate, authority.certificate))
    made = build(settings(shape(alice.key.read_text()), chain, trust))
    assert len(made.get_ca_certs(binary_form=True)) == 1
    encrypted = [alice.encrypted_key(KEY_PASSWORD), old]
    if name == "nothing":
        encrypted.pop()  # the end of its PEM headers can't be found
    for key in encrypted:
        given = {"ssl.key.password": KEY_PASSWORD}
        build(settings(shape(key.read_text()), chain, trust, **given))


def test_text_outside_of_pem_blocks_is_ignored_and_corrupt_blocks_are_rejected(
    alice: KeyAndCertificate, authority: Authority
) -> None:
    key, chain = alice.key.read_text(), alice.certificate.read_text()
    trust = authority.certificate.read_text()
    build(settings(f"# a word\n{key}", f"subject=CN=alice\n{chain} and another", trust))
    broken = key.replace("-----END", "!\n-----END")
    with pytest.raises(ConfigurationError, match="corrupt or truncated") as caught:
        build(settings(broken, chain, trust))
    assert key.splitlines()[1] not in str(caught.value)


def test_tidy_pem_does_not_change_text_with_normal_line_breaks() -> None:
    text = f"-----BEGIN X-----\n{'A' * 64}\nBB==\n-----END X-----\n"
    assert tidy_pem(Secret(text)).reveal() == text
    assert tidy_pem(Secret(" ".join(text.split("\n")))).reveal() == text
