"""Test settings and errors of Kerberos with a fake library."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from odradek.common.config import Config
from odradek.common.errors import ConfigurationError, ServerNotTrustedError, TokenError
from odradek.common.types import Address
from odradek.runtime.credentials.kerberos import (
    Kerberos,
    KerberosContext,
    gssapi_mechanism,
    words_of,
)

BROKER = Address("b1", 9092)


def config(**options: Any) -> Config:
    base = {"bootstrap.servers": "b1:9092", "security.protocol": "SASL_SSL"}
    return Config("admin", {**base, "sasl.mechanism": "GSSAPI", **options})


def test_without_the_gssapi_package_a_client_is_not_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigurationError, match=r"install 'odradek\[gssapi\]'.*libkrb5-dev"):
        gssapi_mechanism(config())


def test_the_error_for_a_missing_sasl_mechanism_names_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    base = {"bootstrap.servers": "b1:9092", "security.protocol": "SASL_SSL"}
    with pytest.raises(ConfigurationError, match="^sasl.mechanism isn't set: set PLAIN, "):
        gssapi_mechanism(Config("admin", base))


def test_each_client_with_a_keytab_has_its_own_ticket_cache_in_memory(tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    keytab.write_bytes(b"\5\2")
    options = {"sasl.kerberos.keytab": str(keytab), "sasl.kerberos.principal": "me@HERE"}
    stores = []
    for _ in range(2):
        library = MagicMock()
        kerberos = Kerberos(config(**options), library)
        kerberos.context(BROKER)
        kerberos.context(BROKER)
        assert [call.args[0] for call in library.Name.call_args_list] == [
            *("me@HERE", "kafka@b1", "me@HERE", "kafka@b1")
        ]
        first, second = (call.kwargs["store"] for call in library.Credentials.call_args_list)
        assert first == second
        assert first["client_keytab"] == str(keytab)
        stores.append(first["ccache"])
    assert stores[0].startswith("MEMORY:")
    assert stores[0] != stores[1]


def test_the_configured_or_else_the_default_ticket_cache_is_used() -> None:
    library = MagicMock()
    Kerberos(config(**{"sasl.kerberos.ticket.cache": "FILE:/x"}), library).context(BROKER)
    assert library.Credentials.call_args.kwargs["store"] == {"ccache": "FILE:/x"}
    library = MagicMock()
    Kerberos(config(**{"sasl.kerberos.service.name": "broker"}), library).context(BROKER)
    library.Credentials.assert_not_called()
    assert library.Name.call_args.args[0] == "broker@b1"
    assert library.SecurityContext.call_args.kwargs["creds"] is None


class GSSError(Exception):
    """An error like that of the gssapi package, whose text contains both status codes."""

    def __str__(self) -> str:
        return f"Major (851968): Unspecified GSS failure, Minor (2529639066): {self.args[0]}"


def test_errors_contain_the_text_of_the_kerberos_library(tmp_path: Path) -> None:
    assert words_of(GSSError("Cannot find KDC for realm X")) == "Cannot find KDC for realm X"
    assert words_of(ValueError()) == "ValueError"
    library = MagicMock()
    library.SecurityContext.side_effect = GSSError("Cannot find KDC for realm X")
    with pytest.raises(TokenError, match=r"Kerberos: Cannot find KDC for realm X\. .*krb5\.conf"):
        Kerberos(config(), library).context(BROKER)
    nowhere = {"sasl.kerberos.keytab": str(tmp_path / "none")}
    with pytest.raises(TokenError, match=r"none doesn't exist"):
        Kerberos(config(**nowhere), library).context(BROKER)


def test_a_failure_to_verify_the_brokers_token_raises_server_not_trusted_error() -> None:
    def fail(token: bytes | None) -> bytes:
        raise GSSError("Message stream modified")

    context = KerberosContext(SimpleNamespace(complete=False, step=fail))
    assert not context.complete
    with pytest.raises(TokenError, match="Message stream modified"):
        context.step(None)
    with pytest.raises(ServerNotTrustedError, match="couldn't verify the broker: Message stream"):
        context.step(b"token")
