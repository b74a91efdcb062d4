"""Test the translation of Java's cipher suite names to OpenSSL's."""

from __future__ import annotations

import pytest

from odradek.runtime.tls.ciphers import is_tls13, openssl_name


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CCM_8", "DHE-RSA-AES256-CCM8"),
        ("TLS_ECDHE_RSA_WITH_ARIA_128_GCM_SHA256", "ECDHE-ARIA128-GCM-SHA256"),
        ("TLS_RSA_WITH_CAMELLIA_256_CBC_SHA", "CAMELLIA256-SHA"),
        ("TLS_DH_anon_WITH_AES_128_CBC_SHA", None),
        ("TLS_RSA_WITH_RC4_128_MD5", None),
        ("nonsense", None),
    ],
)
def test_javas_names_of_cipher_suites_are_translated_to_openssls(
    name: str, own: str | None
) -> None:
    assert openssl_name(name) == own


def test_cipher_suites_of_tls_13_are_recognized() -> None:
    assert is_tls13("TLS_AES_256_GCM_SHA384")
    assert not is_tls13("TLS_RSA_WITH_AES_128_CBC_SHA")
    assert not is_tls13("TLS_EMPTY_RENEGOTIATION_INFO_SCSV")
    assert not is_tls13("ECDHE-RSA-AES128-SHA256")
