"""Test accepted and rejected values of `proxy.url`, and that its password is never shown."""

from __future__ import annotations

import pytest

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError
from odradek.common.proxy import Proxy
from odradek.common.secret import Secret
from odradek.common.types import Address


def read(url: object, name: str = "proxy.url") -> Proxy | None:
    config = Config("producer", {"bootstrap.servers": "a:1", name: url})
    assert "pa55" not in repr(config)
    found: Proxy | None = config["proxy.url"]
    return found


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("socks5://proxy", Proxy("socks5", Address("proxy", 1080))),
        ("SOCKS5H://[::1]:99/", Proxy("socks5h", Address("::1", 99))),
        (
            "http://alice:pa55%40%2F@proxy:3128",
            Proxy("http", Address("proxy", 3128), "alice", Secret("pa55@/")),
        ),
        (b"http://proxy:80", Proxy("http", Address("proxy", 80))),
        (None, None),
    ],
)
def test_valid_proxy_urls_are_accepted(url: object, proxy: Proxy | None) -> None:
    assert read(url) == proxy
    assert read(url, "proxy_url") == proxy  # the option's names in kafka-python
    assert read(url, "socks5_proxy") == proxy


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("https://u:pa55@proxy:1", "over TLS"),
        ("proxy:1080", "scheme"),
        ("ftp://u:pa55@proxy:1", "scheme"),
        ("http://u:pa55@proxy", "no port"),
        ("http://:80", "no host"),
        ("socks5://u:pa55@proxy:port", "not a URL"),
        ("socks5://u:pa55@proxy:1/path", "after the port"),
        ("socks5://:pa55@proxy:1", "no user"),
        ("socks5://user@proxy:1", "needs a password with the user"),
        ("http://a%3Ab:pa55@proxy:1", "colon"),
        (f"socks5://u:{'pa55' * 70}@proxy:1", "255 bytes"),
        (17, "a string, not int"),
    ],
)
def test_invalid_proxy_urls_are_rejected_without_showing_the_password(
    url: object, what: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(url)
    assert what in str(caught.value)
    assert "proxy.url" in str(caught.value)
    assert "pa55" not in str(caught.value)


def test_a_proxy_is_shown_without_its_password() -> None:
    proxy = read("socks5h://alice:pa55@proxy:1080")
    assert str(proxy) == "socks5h://proxy:1080"
    assert "pa55" not in repr(proxy)
