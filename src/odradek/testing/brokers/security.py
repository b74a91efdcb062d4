"""Configure TLS, SASL and ACLs of a local cluster, for its brokers and its clients.

In: the security options of a `LocalCluster`. Out: lines for the brokers' properties, credentials
for the format tool, and the client configuration for Odradek, Java and librdkafka. Brokers
communicate on separate listeners without TLS, which Kafka's tools use, too; with `acls` these
listeners require a password that is generated at each start, because their users have all
permissions. Must not: put a secret on a command line.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from odradek.common.extras import require_extra
from odradek.testing.brokers.broker import CLIENT_LISTENER, LocalBroker

if TYPE_CHECKING:  # a cluster without TLS needn't import `cryptography`
    from odradek.testing.brokers.authority import Authority, KeyAndCertificate, Kind

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientCertificates = Literal["required", "requested"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
DEFAULT_MECHANISMS = ("SCRAM-SHA-512",)
DEFAULT_USERS = {"alice": "alice-secret"}
TOKEN_LIFETIME = 3600.0
_PREFIX = f"listener.name.{CLIENT_LISTENER.lower()}."
_MODULES = "org.apache.kafka.common.security."
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}oauthbearer.OAuthBearerLoginModule",
}
_VALIDATOR = f"{_MODULES}oauthbearer.OAuthBearerValidatorCallbackHandler"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
INNER_USER = "odradek_inner"
"""User name of the brokers on their inner listener with ACLs; it has all permissions."""
# The format tool and the config tool can't escape these characters.
_UNUSABLE = frozenset(',"[]=;\\ ')


@dataclass(slots=True, eq=False)
class Security:
    """The security options of a cluster, applied to its listener for clients.

    `users` exist for PLAIN and SCRAM. OAUTHBEARER accepts unsigned tokens unless `jwks` is the URL
    of the keys. With `acls`, all users except the brokers need permissions.
    """

    protocol: Protocol
    mechanisms: Sequence[str] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    mutual_tls: ClientCertificates | Literal[False] = False
    acls: bool = False
    jwks: str | None = None
    _authority: Authority | None = None
    _clients: dict[str, KeyAndCertificate] = field(default_factory=dict)
    _inner_password: str = field(default_factory=secrets.token_urlsafe)

    def __post_init__(self) -> None:
        if self.protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"security can't be {self.protocol!r}")
        if self.sasl:
            self.mechanisms = tuple(self.mechanisms) or DEFAULT_MECHANISMS
            self.users = dict(self.users or DEFAULT_USERS)
        elif self.mechanisms or (self.users and not self.mutual_tls):
            raise ValueError(f"security={self.protocol} doesn't allow mechanisms or users")
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                raise ValueError(f"unknown mechanism {mechanism}; use {', '.join(MECHANISMS)}")
        for word in (*self.users, *self.users.values()):
            _usable(word)
        if self.mutual_tls and not self.tls:
            raise ValueError("mutual_tls needs security=SSL or SASL_SSL")
        if self.acls and not (self.sasl or self.mutual_tls == "required"):
            raise ValueError("acls=True needs users with names: SASL, or mutual_tls='required'")
        if INNER_USER in self.users:
            raise ValueError(f"the user name {INNER_USER} is reserved for the brokers")

    @property
    def tls(self) -> bool:
        """Whether clients connect with TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol.startswith("SASL")

    @property
    def secured(self) -> bool:
        """Whether clients use TLS or SASL."""
        return self.protocol != "PLAINTEXT"

    @property
    def client_names(self) -> tuple[str, ...]:
        """Names for which clients get settings: the users, or one name if there are no users."""
        if not self.secured:
            return ()
        return tuple(self.users) or ("client",)

    @property
    def authority(self) -> Authority:
        """The certificate authority. Raises `RuntimeError` without TLS."""
        if self._authority is None:
            raise RuntimeError(
                "there is no certificate authority without TLS, or before the cluster is open"
            )
        return self._authority

    def prepare(self, directory: Path) -> None:
        """Create the certificate authority, before any broker is configured."""
        if self.tls and self._authority is None:
            require_extra("odradek.testing.brokers.authority")
            from odradek.testing.brokers.authority import Authority

            self._authority = Authority(directory / "certificates")

    def certify(self, broker: LocalBroker) -> None:
        """Issue a broker's key and certificate for its address and the bootstrap address."""
        if self.tls:
            hosts = ["localhost", "127.0.0.1", broker.address.host]
            self.authority.issue("broker", hosts=hosts, directory=broker.directory)

    # The brokers' side

    def shows_certificate(self, broker: LocalBroker) -> bool:
        """Return whether a broker presents the certificate in its file to new connections."""
        try:
            shown = ssl.get_server_certificate(
                (broker.address.host, broker.address.port), timeout=5
            )
        except OSError:
            return False
        return shown.strip() in _keystore(broker).read_text()

    def reload(self, broker: LocalBroker) -> str:
        """Return the configuration change that makes a running broker reload its certificate.

        The change sets the same file name again: brokers read the file whenever the option is set.
        """
        return f"{_PREFIX}ssl.keystore.location={_keystore(broker)}"

    def broker_lines(self, broker: LocalBroker) -> dict[str, str]:
        """Return the lines of a broker's properties that secure its listener for clients."""
        lines: dict[str, str] = {}
        if self.tls:
            lines |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(_keystore(broker)),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                "ssl.client.auth": self.mutual_tls or "none",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            }
        if self.sasl:
            lines["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
        for mechanism in self.mechanisms:
            module = self._server_module(mechanism)
            if module:
                lines[f"{mechanism.lower()}.sasl.jaas.config"] = module
        if "OAUTHBEARER" in self.mechanisms and self.jwks is not None:
            lines["oauthbearer.sasl.server.callback.handler.class"] = _VALIDATOR
            lines["oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = self.jwks
        found = {f"{_PREFIX}{name}": value for name, value in lines.items()}
        if self.acls:
            # Without a password, every client that connects to this listener would be a super user.
            module, word = _LOGIN_MODULES["PLAIN"], _quoted(self._inner_password)
            who = f"username={INNER_USER} password={word} user_{INNER_USER}={word}"
            found["authorizer.class.name"] = _AUTHORIZER
            found["super.users"] = f"User:{INNER_USER}"
            found["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
            found["sasl.mechanism.controller.protocol"] = "PLAIN"
            for listener in ("inner", "controller"):
                prefix = f"listener.name.{listener}."
                found[f"{prefix}sasl.enabled.mechanisms"] = "PLAIN"
                found[f"{prefix}plain.sasl.jaas.config"] = f"{module} required {who};"
        return found

    @property
    def among_brokers(self) -> Protocol:
        """Security protocol of the brokers' inner listeners."""
        return "SASL_PLAINTEXT" if self.acls else "PLAINTEXT"

    @property
    def inner_login(self) -> tuple[str, str] | None:
        """User and password for the brokers' inner listeners; None if they need no login."""
        return (INNER_USER, self._inner_password) if self.acls else None

    def inner_java(self) -> dict[str, str]:
        """Return settings for Java clients of the brokers' inner listeners."""
        if not self.acls:
            return {}
        who = f"username={INNER_USER} password={_quoted(self._inner_password)}"
        return {
            "security.protocol": self.among_brokers,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{_LOGIN_MODULES['PLAIN']} required {who};",
        }

    @property
    def java_options(self) -> tuple[str, ...]:
        """JVM options of the brokers, in addition to their properties."""
        if self.jwks is None:
            return ()
        return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks}",)

    def format_arguments(self) -> list[str]:
        """Return the format tool's arguments that add the users with SCRAM."""
        return [
            word
            for mechanism in self.mechanisms
            if mechanism.startswith("SCRAM")
            for name, password in self.users.items()
            for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def change_password(self, user: str, password: str) -> list[str]:
        """Store a user's new password; return the SCRAM mechanisms to change on the brokers."""
        _usable(password)
        if user not in self.users:
            raise KeyError(f"there is no user {user}")
        self.users = {**self.users, user: password}
        return [m for m in self.mechanisms if m.startswith("SCRAM")]

    def _server_module(self, mechanism: str) -> str | None:
        """Return a broker's JAAS login module for a mechanism; None for Kerberos (`config`)."""
        module = _LOGIN_MODULES.get(mechanism)
        if module is None:
            return None
        options = ""
        if mechanism == "PLAIN":
            options = "".join(f' user_{name}="{word}"' for name, word in self.users.items())
        elif mechanism == "OAUTHBEARER" and self.jwks is None:
            options = ' unsecuredLoginStringClaim_sub="broker"'
        return f"{module} required{options};"

    # The clients' side of security

    def client_identity(self, name: str) -> KeyAndCertificate:
        """Return the key and certificate of the client with this name."""
        if name not in self._clients:
            self._clients[name] = self.authority.issue(name)
        return self._clients[name]

    def java(
        self,
        user: str | None = None,
        mechanism: str | None = None,
        password: str | None = None,
        stores: Kind = "PEM",
    ) -> dict[str, str]:
        """Return a client's settings with Kafka's names, as in a Java client's properties file."""
        if not self.secured:
            return {}
        name, mechanism = self._who(user, mechanism)
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.tls:
            found |= _store("truststore", stores, self.authority.truststore(stores))
        if self.mutual_tls and name is not None:
            identity = self.client_identity(name)
            found |= _store("keystore", stores, identity.keystore(stores))
        if mechanism is not None and name is not None:
            found["sasl.mechanism"] = mechanism
            module = _LOGIN_MODULES.get(mechanism)
            if mechanism == "OAUTHBEARER":
                options = f'unsecuredLoginStringClaim_sub="{name}"'
            else:
                word = self.users.get(name, "") if password is None else password
                options = f"username={_quoted(name)} password={_quoted(word)}"
            if module is not None:
                found["sasl.jaas.config"] = f"{module} required {options};"
        return found

    def ours(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        """Return a client's settings for Odradek; OAUTHBEARER tokens come from a function."""
        found: dict[str, Any] = self.java(user, mechanism, password)
        if found.get("sasl.mechanism") == "OAUTHBEARER":
            del found["sasl.jaas.config"]
            name, _ = self._who(user, mechanism)
            found["sasl.oauthbearer.token.provider"] = token_function(str(name))
        return found

    def librdkafka(
        self, user: str | None = None, mechanism: str | None = None, password: str | None = None
    ) -> dict[str, str]:
        """Return a client's settings for librdkafka."""
        if not self.secured:
            return {}
        name, mechanism = self._who(user, mechanism)
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.tls:
            found["ssl.ca.location"] = str(self.authority.certificate)
        if self.mutual_tls and name is not None:
            identity = self.client_identity(name)
            found["ssl.certificate.location"] = str(identity.certificate)
            found["ssl.key.location"] = str(identity.key)
        if mechanism is not None and name is not None:
            found["sasl.mechanisms"] = mechanism
            if mechanism == "OAUTHBEARER":
                found["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
                found["sasl.oauthbearer.config"] = f"principal={name}"
            else:
                found["sasl.username"] = name
                found["sasl.password"] = self.users.get(name, "") if password is None else password
        return found

    def _who(self, user: str | None, mechanism: str | None) -> tuple[str | None, str | None]:
        """Return the user and the mechanism, by default the first user and the first mechanism."""
        name = user or next(iter(self.client_names), None)
        return name, mechanism or next(iter(self.mechanisms), None)


def unsecured_token(name: str, lifetime: float = TOKEN_LIFETIME) -> tuple[str, float]:
    """Return an unsigned JSON web token for `name`, and its expiry in seconds since the epoch."""
    now = time.time()
    claims = {"sub": name, "iat": int(now), "exp": int(now + lifetime)}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": "none"}, claims)
    ]
    return f"{parts[0]}.{parts[1]}.", now + lifetime


def token_function(name: str, lifetime: float = TOKEN_LIFETIME) -> Callable[[], tuple[str, float]]:
    """Return a function that returns a new token at each call."""
    return lambda: unsecured_token(name, lifetime)


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a Java properties file."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


def _keystore(broker: LocalBroker) -> Path:
    return broker.directory / "broker-both.pem"


def _store(what: str, kind: Kind, path: Path) -> dict[str, str]:
    found = {f"ssl.{what}.type": kind, f"ssl.{what}.location": str(path)}
    if kind != "PEM":
        from odradek.testing.brokers.authority import STORE_PASSWORD

        found[f"ssl.{what}.password"] = STORE_PASSWORD
        if what == "keystore":
            found["ssl.key.password"] = STORE_PASSWORD
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _usable(word: str) -> None:
    if not word or _UNUSABLE.intersection(word):
        raise ValueError(
            "names and passwords of a local cluster's users can't be empty or contain "
            + " ".join(sorted(_UNUSABLE - {" "}))
            + " or a space: Kafka's tools reject these characters"
        )
