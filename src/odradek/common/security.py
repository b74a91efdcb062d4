"""Combine the security options, and check them against each other.

In: the values that `config` has read, and the names that the user set. Out: the completed values,
with the content of `sasl.jaas.config` as options, and a known mechanism; an error for a
contradiction, which says what to change. Must not: read files, or show a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.common.options.security import IAM, IGNORED, OAUTH
from odradek.common.options.security_values import pem
from odradek.common.secret import Secret
from odradek.common.types import Address

if TYPE_CHECKING:
    from odradek.common.options.jaas import LoginModule

logger = logging.getLogger("odradek")

PLAIN, SCRAM, OAUTHBEARER, GSSAPI = "PLAIN", "SCRAM", "OAUTHBEARER", "GSSAPI"
MSK_IAM = "AWS_MSK_IAM"
MODULES = {
    "PlainLoginModule": PLAIN,
    "ScramLoginModule": SCRAM,
    "OAuthBearerLoginModule": OAUTHBEARER,
    "Krb5LoginModule": GSSAPI,
    "IAMLoginModule": MSK_IAM,
}
DANGERS = {
    PLAIN: "can read the credentials",
    OAUTHBEARER: "can read the credentials",
    MSK_IAM: "can replay this client's signature for some minutes",
    SCRAM: "can try passwords offline, and can impersonate this user by changing packets",
}
"""Risk if credentials are sent in plaintext, by mechanism (its first letters)."""
UNSECURED = "unsecuredLogin"
EXTENSION = "extension_"
_AWS = (
    *("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion"),
    *("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken", "awsDebugCreds"),
    *("awsMaxRetries", "awsMaxBackOffTimeMs"),
)
KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    PLAIN: (("username", "password"), ("user_",)),
    SCRAM: (("username", "password", "tokenauth"), ()),
    OAUTHBEARER: (
        (
            *("clientId", "clientSecret", "scope", "oauth.audience", "ssl.truststore.location"),
            *("ssl.truststore.password", "ssl.truststore.certificates", "ssl.truststore.type"),
            *_AWS,
        ),
        (EXTENSION, UNSECURED),
    ),
    GSSAPI: (
        (
            *("useKeyTab", "keyTab", "principal", "ticketCache", "serviceName", "storeKey"),
            *("useTicketCache", "doNotPrompt", "renewTGT", "debug", "refreshKrb5Config"),
            *("isInitiator", "useFirstPass", "tryFirstPass", "storePass", "clearPass"),
        ),
        (),
    ),
    MSK_IAM: (_AWS, ()),
}
"""Options of each login module: names, and prefixes of names.

Some have no effect, because this client always does what they enable.
"""

Values = dict[str, Any]


def settle_security(values: Values, given: Collection[str]) -> None:
    """Complete the security options in place; warn of options that have no effect."""
    protocol = values["security.protocol"]
    for name in sorted(IGNORED.keys() & given):
        logger.warning("%s has no effect: %s", name, IGNORED[name])
    sasl, tls = protocol.startswith("SASL_"), protocol.endswith("SSL")
    idle = [n for n in sorted(given) if n not in IGNORED and values[n] is not None]
    if not sasl:
        values["sasl.mechanism"] = None
        _warn_idle([n for n in idle if n.startswith("sasl.")], protocol, "SASL_SSL")
    else:
        _settle_sasl(values, given)
    if tls:
        _check_tls(values, given)
    else:
        better = "SASL_SSL" if sasl else "SSL"
        _warn_idle([n for n in idle if n.startswith(("ssl.", "enable.ssl."))], protocol, better)


def _warn_idle(names: list[str], protocol: str, better: str) -> None:
    if names:
        logger.warning(
            "%s: no effect with security.protocol=%s; did you mean %s?",
            *(", ".join(names), protocol, better),
        )


# SASL


def _settle_sasl(values: Values, given: Collection[str]) -> None:
    if values["sasl.jaas.config"] is not None:
        from odradek.common.options.jaas import (
            parse_jaas,  # imported late: most clients don't need it
        )

        _take_jaas(values, given, parse_jaas(values["sasl.jaas.config"]))
    if values["sasl.mechanism"] is None:
        if values["sasl.username"] is not None or values["sasl.password"] is not None:
            raise ConfigurationError(
                "sasl.mechanism is missing: set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, as "
                "configured on the brokers"
            )
        oauth = values[f"{OAUTH}.token.provider"] or values[f"{OAUTH}.token.endpoint.url"]
        values["sasl.mechanism"] = OAUTHBEARER if oauth else GSSAPI
    mechanism = values["sasl.mechanism"]
    if mechanism == PLAIN or mechanism.startswith(SCRAM):
        for name in ("sasl.username", "sasl.password"):
            if not values[name]:
                raise ConfigurationError(
                    f"sasl.mechanism={mechanism} needs {name} (or a sasl.jaas.config that "
                    "contains it)"
                )
    if mechanism == OAUTHBEARER:
        _settle_oauthbearer(values)
    if values["security.protocol"] == "SASL_PLAINTEXT":
        _warn_of_plaintext(mechanism, values["bootstrap.servers"] or ())


def _warn_of_plaintext(mechanism: str, servers: Iterable[Address]) -> None:
    """Warn once per client if credentials are sent in plaintext to another machine."""
    away = [str(server) for server in servers if not _is_loopback(server.host)]
    danger = next((DANGERS[kind] for kind in DANGERS if mechanism.startswith(kind)), None)
    if away and danger:
        logger.warning(
            "security.protocol=SASL_PLAINTEXT with %s to %s: an attacker on the network %s; use "
            "SASL_SSL",
            *(mechanism, ", ".join(away), danger),
        )


def _is_loopback(host: str) -> bool:
    if host.lower().removesuffix(".") == "localhost":
        return True
    from ipaddress import ip_address  # only here: most clients start without it

    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _settle_oauthbearer(values: Values) -> None:
    handler = values["sasl.login.callback.handler.class"]
    method = values[f"{OAUTH}.method"]
    text = values[f"{OAUTH}.config"]
    unsecured = values[f"{OAUTH}.unsecured"]
    if values["enable.sasl.oauthbearer.unsecure.jwt"] and unsecured is None:
        unsecured = values[f"{OAUTH}.unsecured"] = _librdkafka_claims(text or Secret(""), values)
    url = values[f"{OAUTH}.token.endpoint.url"]
    provided = values[f"{OAUTH}.token.provider"] is not None
    if method == "default" and not provided:
        if handler == "IAMOAuthBearerLoginCallbackHandler":
            method = "aws_msk_iam"
        elif url is not None:
            method = "oidc"
        elif unsecured is not None or handler == "OAuthBearerUnsecuredLoginCallbackHandler":
            method = "unsecured"
        else:
            raise ConfigurationError(
                "sasl.mechanism=OAUTHBEARER needs a source of tokens: set "
                f"{OAUTH}.token.provider=<a function>, or {OAUTH}.token.endpoint.url with "
                f"{OAUTH}.client.credentials.*"
            )
    if method == "oidc" and url is None and not provided:
        raise ConfigurationError(f"{OAUTH}.method=oidc needs {OAUTH}.token.endpoint.url")
    if method == "unsecured":
        values[f"{OAUTH}.unsecured"] = unsecured or {}
    values[f"{OAUTH}.method"] = method


def _librdkafka_claims(text: Secret, values: Values) -> Mapping[str, str]:
    """Parse librdkafka's `principal=… scope=a,b lifeSeconds=…`; return claims by Java's names."""
    given = dict(word.partition("=")[::2] for word in text.reveal().split())
    claims: dict[str, str] = {}
    if "principal" in given:
        name = given.get("principalClaimName", "sub")
        claims |= {f"StringClaim_{name}": given["principal"], "PrincipalClaimName": name}
    if "scope" in given:
        name = given.get("scopeClaimName", "scope")
        claims |= {f"ListClaim_{name}": f",{given['scope']}", "ScopeClaimName": name}
    if "lifeSeconds" in given:
        claims["LifetimeSeconds"] = given["lifeSeconds"]
    extensions = {k.removeprefix(EXTENSION): v for k, v in given.items() if k.startswith(EXTENSION)}
    values[f"{OAUTH}.extensions"] = {**extensions, **values[f"{OAUTH}.extensions"]}
    return claims


# Options of a login module


def _take_jaas(values: Values, given: Collection[str], module: LoginModule) -> None:
    kind = MODULES.get(module.name)
    if kind is None:
        raise ConfigurationError(
            f"sasl.jaas.config has an unknown login module; supported are {', '.join(MODULES)}. "
            "Instead of it, you can set sasl.mechanism with sasl.username and sasl.password, or "
            f"with {OAUTH}.token.provider=<a function>"
        )
    mechanism = values["sasl.mechanism"]
    if mechanism is None and kind == SCRAM:
        raise ConfigurationError(
            "sasl.mechanism is missing: with ScramLoginModule set SCRAM-SHA-256 or "
            "SCRAM-SHA-512, as configured on the brokers"
        )
    if mechanism is None:
        values["sasl.mechanism"] = kind
    elif not mechanism.startswith(kind):
        fitting = next((n for n, k in MODULES.items() if mechanism.startswith(k)), "no module")
        raise ConfigurationError(
            f"sasl.jaas.config has {module.name}, but sasl.mechanism={mechanism} needs {fitting}: "
            "change one of them"
        )
    _warn_of_unknown(kind, module)
    for name, value in _MEANINGS[kind](module):
        if value is None:
            continue
        if name in given and values[name] != value:
            raise ConfigurationError(
                f"{name} and sasl.jaas.config have different values: remove one of them"
            )
        values[name] = value


def _warn_of_unknown(kind: str, module: LoginModule) -> None:
    """Warn of unknown options of a login module, which have no effect in Java either.

    A name is only shown if it resembles a known name; any other name may be a part of a password.
    """
    from difflib import get_close_matches  # only here: most clients start without it

    names, prefixes = KNOWN[kind]
    for name in module.options:
        if name in names or name.startswith(prefixes):
            continue
        close = get_close_matches(name, names, n=1, cutoff=0.7)
        what = f"{name!r} (did you mean {close[0]}?)" if close else "one of its options"
        logger.warning(
            "sasl.jaas.config: %s doesn't know %s, which has no effect", module.name, what
        )


def _username_password(module: LoginModule) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [
        ("sasl.username", module.text("username")),
        ("sasl.password", module.options.get("password")),
    ]
    if module.name == "ScramLoginModule":
        found.append(("sasl.scram.tokenauth", module.true("tokenauth") or None))
    return found


def _oauthbearer(module: LoginModule) -> list[tuple[str, Any]]:
    extensions = _with_prefix(module, EXTENSION)
    claims = {
        name: text
        for name, text in _with_prefix(module, UNSECURED).items()
        if not name.startswith("Extension_")
    }
    extensions |= _with_prefix(module, UNSECURED + "Extension_")
    inline = module.text("ssl.truststore.certificates")
    return [
        (f"{OAUTH}.client.credentials.client.id", module.text("clientId")),
        (f"{OAUTH}.client.credentials.client.secret", module.options.get("clientSecret")),
        (f"{OAUTH}.scope", module.text("scope")),
        (f"{OAUTH}.audience", module.text("oauth.audience")),
        (f"{OAUTH}.extensions", extensions or None),
        (f"{OAUTH}.unsecured", claims or None),
        # For the token endpoint, Java takes the truststore from here, not from ssl.truststore.*.
        ("https.ca.location", module.text("ssl.truststore.location")),
        ("https.ca.pem", inline and pem("https.ca.pem", inline)),
        ("https.ca.password", module.options.get("ssl.truststore.password")),
        *_msk_iam(module),
    ]


def _with_prefix(module: LoginModule, prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value.reveal()
        for name, value in module.options.items()
        if name.startswith(prefix)
    }


def _kerberos(module: LoginModule) -> list[tuple[str, Any]]:
    keytab = module.text("keyTab") if module.true("useKeyTab") else None
    return [
        ("sasl.kerberos.service.name", module.text("serviceName")),
        ("sasl.kerberos.principal", module.text("principal")),
        ("sasl.kerberos.keytab", keytab and keytab.removeprefix("file:").removeprefix("FILE:")),
        ("sasl.kerberos.ticket.cache", module.text("ticketCache")),
    ]


def _msk_iam(module: LoginModule) -> list[tuple[str, Any]]:
    def hidden(name: str) -> Secret | None:
        return module.options.get(name)

    return [
        (f"{IAM}.profile", module.text("awsProfileName")),
        (f"{IAM}.role.arn", module.text("awsRoleArn")),
        (f"{IAM}.role.session.name", module.text("awsRoleSessionName")),
        (f"{IAM}.role.external.id", module.text("awsRoleExternalId")),
        (f"{IAM}.role.access.key.id", module.text("awsRoleAccessKeyId")),
        (f"{IAM}.role.secret.access.key", hidden("awsRoleSecretAccessKey")),
        (f"{IAM}.role.session.token", hidden("awsRoleSessionToken")),
        (f"{IAM}.sts.region", module.text("awsStsRegion")),
    ]


_MEANINGS: dict[str, Callable[[LoginModule], list[tuple[str, Any]]]] = {
    PLAIN: _username_password,
    SCRAM: _username_password,
    OAUTHBEARER: _oauthbearer,
    GSSAPI: _kerberos,
    MSK_IAM: _msk_iam,
}


# TLS


def _check_tls(values: Values, given: Collection[str]) -> None:
    def there(*names: str) -> list[str]:
        return [name for name in names if values[name] is not None]

    if values["ssl.context"] is not None:
        others = [n for n in sorted(given) if n.startswith(("ssl.", "enable.ssl."))]
        others = [n for n in others if n != "ssl.context" and n not in IGNORED]
        if others:
            raise ConfigurationError(
                f"ssl.context can't be combined with {', '.join(others)}: configure the context "
                "accordingly, or remove ssl.context"
            )
        return
    _not_both(there("ssl.truststore.location", "ssl.truststore.certificates"))
    keys = there("ssl.keystore.key", "ssl.key.location")
    chains = there("ssl.keystore.certificate.chain", "ssl.certificate.location")
    _not_both(keys)
    _not_both(chains)
    for name in there("ssl.keystore.location"):
        _not_both([name, *keys, *chains])
    if keys and not chains:
        needed = "ssl.keystore.certificate.chain or ssl.certificate.location"
        raise ConfigurationError(f"{keys[0]} needs the matching certificates: set {needed}")
    if chains == ["ssl.keystore.certificate.chain"] and not keys:
        raise ConfigurationError(
            f"{chains[0]} needs the private key: set ssl.keystore.key or ssl.key.location"
        )
    if not values["ssl.endpoint.identification.algorithm"]:
        logger.warning(
            "host names of brokers aren't verified (ssl.endpoint.identification.algorithm is "
            "empty): any server with a trusted certificate can impersonate a broker"
        )
    if not values["enable.ssl.certificate.verification"]:
        logger.warning(
            "enable.ssl.certificate.verification=false: any server can impersonate the brokers "
            "of %s; use it for tests only",
            ",".join(str(address) for address in values["bootstrap.servers"]),
        )


def _not_both(names: list[str]) -> None:
    if len(names) > 1:
        raise ConfigurationError(f"{' and '.join(names)} can't be combined: remove one of them")
