"""Authenticate with Kerberos through MIT's library and the package `gssapi` (`odradek[gssapi]`).

In: `sasl.kerberos.*`, and the machine's krb5.conf. Out: security contexts for the mechanism GSSAPI.
With a keytab, tickets are fetched into a cache in memory, and again before they expire; otherwise
they are from a ticket cache that another program (kinit, sssd) maintains. No program is started.
Must not: be imported for clients without GSSAPI; all functions may block.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from odradek.common.config import Config
from odradek.common.errors import (
    AuthenticationError,
    ConfigurationError,
    ServerNotTrustedError,
    TokenError,
)
from odradek.common.types import Address
from odradek.network.sasl.gssapi import Gssapi

T = TypeVar("T")

_numbers = itertools.count()

SERVICE = (
    "Check that sasl.kerberos.service.name is the service name of the brokers, and that "
    "bootstrap.servers (and advertised.listeners) has the host name of their principal."
)
KEYTAB = "Compare sasl.kerberos.principal with the output of: klist -k <sasl.kerberos.keytab>"
CENTRE = "Check the realm and its key distribution centre in krb5.conf."
TICKET = "Set sasl.kerberos.keytab and sasl.kerberos.principal, or get a ticket with kinit."
CLOCK = "Synchronise the clocks of this machine and the key distribution centre."
CURES = (
    (("server not found", "not found in kerberos database"), SERVICE),
    (("keytab", "key table", "preauthentication", "client not found"), KEYTAB),
    (("credentials", "can't find client principal", "expired"), TICKET),
    (("clock", "skew"), CLOCK),
    (("kdc", "realm", "resolve"), CENTRE),
)
IMPLIED = (
    "sasl.mechanism isn't set: set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 with sasl.username and "
    "sasl.password, or OAUTHBEARER, as configured on the brokers. Without it, the client uses "
    "Kerberos, as Java's does: "
)
"""Beginning of the error text if `sasl.mechanism` isn't set, so that GSSAPI is the default."""
USUAL_CURE = "Check krb5.conf, sasl.kerberos.* and the tickets (klist)."


def gssapi_mechanism(config: Config) -> Gssapi:
    """Return the GSSAPI mechanism for a configuration; raise if the package isn't installed."""
    try:
        library = import_module("gssapi")
    except ImportError as error:
        implied = config.given.isdisjoint(("sasl.mechanism", "sasl.jaas.config"))
        raise ConfigurationError(
            f"{IMPLIED if implied else ''}sasl.mechanism=GSSAPI needs the package gssapi: pip "
            "install 'odradek[gssapi]' (it is compiled against MIT Kerberos and needs libkrb5-dev "
            f"and gcc). The error was: {error}"
        ) from None
    return Gssapi(Kerberos(config, library).context)


class Kerberos:
    """The Kerberos tickets of one client."""

    def __init__(self, config: Config, library: Any) -> None:
        self._library = library
        self._service: str = config["sasl.kerberos.service.name"]
        self._principal: str | None = config["sasl.kerberos.principal"]
        self._keytab: str | None = config["sasl.kerberos.keytab"]
        cache: str | None = config["sasl.kerberos.ticket.cache"]
        self._store: dict[str, str] = {}
        if cache is not None:
            self._store["ccache"] = cache
        if self._keytab is not None:
            self._store["client_keytab"] = self._keytab
            # A ticket cache in memory, for this client only.
            self._store.setdefault("ccache", f"MEMORY:odradek-{os.getpid()}-{next(_numbers)}")

    def context(self, address: Address) -> KerberosContext:
        """Return a new context for a broker; fetch a ticket for this client if it has none."""
        if self._keytab is not None:
            _readable(self._keytab)  # to raise a clearer error than the library
        return _explained(lambda: self._context(address), cure=KEYTAB if self._keytab else "")

    def _context(self, address: Address) -> KerberosContext:
        gssapi = self._library
        name = None
        if self._principal is not None:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        credentials = None
        if name is not None or self._store:
            credentials = gssapi.Credentials(name=name, usage="initiate", store=self._store or None)
        flags = gssapi.RequirementFlag
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{self._service}@{address.host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=[
                flags.mutual_authentication,
                flags.integrity,
                flags.replay_detection,
                flags.out_of_sequence_detection,
            ],
        )
        return KerberosContext(context)


class KerberosContext:
    """The client's side of one authentication; its errors say what to do."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        """Process the broker's token. The first step gets a ticket for the broker's service."""
        step: bytes | None = _explained(lambda: self._context.step(token), heard=token is not None)
        return step

    def unwrap(self, message: bytes) -> bytes:
        """Verify the integrity of a message from the broker; return the message's content."""
        return bytes(_explained(lambda: self._context.unwrap(message).message, heard=True))

    def wrap(self, message: bytes) -> bytes:
        """Wrap a message with integrity protection, without encrypting it."""
        return bytes(_explained(lambda: self._context.wrap(message, False).message))


def _readable(keytab: str) -> None:
    path = keytab.removeprefix("FILE:")
    if not os.access(path, os.R_OK):
        why = "can't be read by this process" if os.path.lexists(path) else "doesn't exist"
        raise TokenError(f"sasl.kerberos.keytab: {path} {why}", cure=KEYTAB)


def _explained(function: Callable[[], T], *, heard: bool = False, cure: str = "") -> T:
    """Run a function; convert the library's exceptions to errors of this package."""
    try:
        return function()
    except AuthenticationError:
        raise
    except Exception as error:
        said = words_of(error)
        if heard:
            raise ServerNotTrustedError(f"Kerberos couldn't verify the broker: {said}") from error
        raise TokenError(f"Kerberos: {said}", cure=_cure(said, cure)) from error


def words_of(error: Exception) -> str:
    """Return the text of the minor status, because the major status doesn't name the cause."""
    text = " ".join(str(error).split())
    _, minor, rest = text.partition("Minor (")
    if minor and ": " in rest:
        text = rest.partition(": ")[2]
    return text[:300] or type(error).__name__


def _cure(said: str, instead: str) -> str:
    """Return a text that says what to do; `instead` replaces the advice to run kinit."""
    lower = said.lower()
    found = next((cure for marks, cure in CURES if any(m in lower for m in marks)), USUAL_CURE)
    return instead if instead and found in (TICKET, USUAL_CURE) else found
