"""The options of security: each stands here once, by Kafka's name.

Out: `SECURITY_OPTIONS`, which `config` adds to the others; `SECRETS`, the names whose values are
kept as `Secret`. Other clients' names for the same are in `spellings`, the rules between options
and what `sasl.jaas.config` means in `security`. Must not: hold values of a client.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.common.option_values import (
    INT_MAX,
    Option,
    Parse,
    boolean,
    choice,
    integer,
    milliseconds,
    optional,
    sent_name,
    text,
)
from odradek.common.proxy import proxy_url
from odradek.common.security_values import (
    MECHANISMS,
    PROTOCOLS,
    ciphers,
    endpoint_identification,
    names,
    number,
    pairs,
    path,
    pem,
    provider,
    secret,
    secret_pem,
    store_type,
    tls_context,
    upper,
)

OAUTH = "sasl.oauthbearer"
IAM = "sasl.aws.msk.iam"
LOGIN = "sasl.login"


def _ignored(why: str) -> Parse:
    """An option of Java's or librdkafka's that changes nothing here; `security` warns of it."""

    def parse(name: str, value: Any) -> str:
        return why

    return parse


def _java_default(*defaults: str, instead: str) -> Parse:
    """A Java class that can't run here, except where it is Java's own (by the name's last part)."""

    def parse(name: str, value: Any) -> str | None:
        if value is None or not str(value).strip():
            return None
        short = str(value).encode("utf-8", "backslashreplace").decode().strip().rpartition(".")[2]
        if short not in defaults:
            raise UnsupportedFeatureError(
                f"{name}: the Java class {short} can't run here; use {instead}"
            )
        return short

    return parse


def _text_or_list(name: str, value: Any) -> str:
    if isinstance(value, str):
        return text(name, value)
    found = names(name, value)
    if len(found) != 1:
        raise ConfigurationError(f"{name} must name one mechanism, not {len(found)}")
    return found[0]


def _mechanism(name: str, value: Any) -> str:
    found = _text_or_list(name, value).strip().upper()
    if found not in MECHANISMS:
        raise ConfigurationError(f"{name} must be one of {', '.join(MECHANISMS)}, not {found!r}")
    return found


JVM = "it chooses among parts of the Java machine; OpenSSL does that work here"
IGNORED: dict[str, str] = {
    "ssl.provider": JVM,
    "security.providers": JVM,
    "ssl.secure.random.implementation": JVM,
    "ssl.keymanager.algorithm": JVM,
    "ssl.trustmanager.algorithm": JVM,
    "sasl.kerberos.kinit.cmd": "no command is run: keytab or ticket cache are read directly",
    "sasl.kerberos.min.time.before.relogin": "tickets are taken when a connection needs one",
    "sasl.kerberos.ticket.renew.jitter": "tickets are taken when a connection needs one",
    "sasl.kerberos.ticket.renew.window.factor": "tickets are taken when a connection needs one",
    f"{OAUTH}.clock.skew.seconds": "the broker checks the token",
    f"{OAUTH}.expected.audience": "the broker checks the token",
    f"{OAUTH}.expected.issuer": "the broker checks the token",
    f"{OAUTH}.jwks.endpoint.refresh.ms": "the broker checks the token",
    f"{OAUTH}.jwks.endpoint.retry.backoff.ms": "the broker checks the token",
    f"{OAUTH}.jwks.endpoint.retry.backoff.max.ms": "the broker checks the token",
    f"{OAUTH}.jwks.endpoint.url": "the broker checks the token",
    f"{OAUTH}.scope.claim.name": "the broker checks the token",
    f"{OAUTH}.sub.claim.name": "the broker checks the token",
    f"{OAUTH}.jwt.validator.class": "the broker checks the token",
}
"""Options that are taken and change nothing, each with the reason that the warning gives."""

_TRANSPORT = (
    Option(
        "security.protocol",
        upper(*PROTOCOLS),
        "PLAINTEXT",
        "How to speak to brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    Option(
        "security.protocol.probe.enable",
        boolean,
        False,
        "With true, the next dial after a TLS handshake that ended without a word asks in "
        "plaintext (ApiVersions alone, no credential) whether the port speaks no TLS.",
    ),
    Option(
        "ssl.truststore.location",
        optional(path),
        None,
        "Whom to trust: a PEM, PKCS12 or JKS file, or a folder of PEM files with OpenSSL's hashed "
        "names. Without any the system's store is used.",
    ),
    Option("ssl.truststore.password", optional(secret), None, "The password of that store."),
    Option(
        "ssl.truststore.type",
        optional(store_type),
        None,
        "JKS, PKCS12 or PEM; the content tells by itself.",
    ),
    Option(
        "ssl.truststore.certificates",
        optional(pem),
        None,
        "Whom to trust, as PEM text.",
        kip="KIP-651",
    ),
    Option(
        "ssl.keystore.location",
        optional(path),
        None,
        "This client's key and certificates: a PEM, PKCS12 or JKS file.",
    ),
    Option("ssl.keystore.password", optional(secret), None, "The password of that store."),
    Option(
        "ssl.keystore.type",
        optional(store_type),
        None,
        "JKS, PKCS12 or PEM; the content tells by itself.",
    ),
    Option(
        "ssl.keystore.key",
        optional(secret_pem),
        None,
        "This client's private key, as PEM text.",
        kip="KIP-651",
    ),
    Option(
        "ssl.keystore.certificate.chain",
        optional(pem),
        None,
        "This client's certificates, its own first, as PEM text.",
        kip="KIP-651",
    ),
    Option("ssl.key.password", optional(secret), None, "What the private key is encrypted with."),
    Option(
        "ssl.certificate.location",
        optional(path),
        None,
        "PEM file with this client's certificates; goes with ssl.key.location.",
    ),
    Option("ssl.key.location", optional(path), None, "PEM file with this client's private key."),
    Option("ssl.crl.location", optional(path), None, "PEM file of certificates that are revoked."),
    Option(
        "ssl.protocol",
        upper("TLS", "TLSV1.2", "TLSV1.3", hint=" (older ones aren't spoken)"),
        "TLS",
        "With TLSv1.2 nothing newer is spoken.",
    ),
    Option(
        "ssl.enabled.protocols",
        names,
        ("TLSv1.2", "TLSv1.3"),
        "The versions that may be spoken.",
    ),
    Option(
        "ssl.cipher.suites",
        optional(ciphers),
        None,
        "Java's names with commas between, or a text in OpenSSL's language.",
    ),
    Option(
        "ssl.endpoint.identification.algorithm",
        endpoint_identification,
        "https",
        "https: the certificate must be for the broker's host name; empty: for anybody's.",
    ),
    Option(
        "enable.ssl.certificate.verification",
        boolean,
        True,
        "With false the broker may be anybody: for tests only.",
    ),
    Option(
        "ssl.keylog.file",
        optional(path),
        None,
        "Where the keys of TLS connections are written, for Wireshark; SSLKEYLOGFILE means what "
        "that variable names. Whoever has the file can read everything.",
    ),
    Option("ssl.context", optional(tls_context), None, "An ssl.SSLContext to use as it is."),
    Option(
        "ssl.engine.factory.class",
        _java_default("DefaultSslEngineFactory", instead="ssl.context=<an ssl.SSLContext>"),
        None,
        "Java's own only.",
    ),
    Option("https.ca.location", optional(path), None, "Whom to trust as token endpoint: a file."),
    Option("https.ca.password", optional(secret), None, "The password of that, if it is a store."),
    Option("https.ca.pem", optional(pem), None, "The same as PEM text."),
)

_PROXY = (
    Option(
        "proxy.url",
        optional(proxy_url),
        None,
        "The proxy on the way to brokers: socks5://, socks5h:// (it resolves their names) or "
        "http:// (CONNECT), as scheme://user:password@host:port.",
    ),
)

_SASL = (
    Option(
        "sasl.mechanism",
        optional(_mechanism),
        None,
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM. Where it isn't "
        "given, the login module in sasl.jaas.config says it, else it is GSSAPI as in Java.",
    ),
    Option("sasl.username", optional(sent_name), None, "Who logs in, with PLAIN and SCRAM."),
    Option("sasl.password", optional(secret), None, "The password, with PLAIN and SCRAM."),
    Option(
        "sasl.jaas.config",
        optional(secret),
        None,
        "Java's login module with its options; what it says becomes the options here.",
        kip="KIP-85",
    ),
    Option(
        "sasl.scram.tokenauth",
        boolean,
        False,
        "User and password are a delegation token's id and HMAC.",
        kip="KIP-48",
    ),
    Option(
        "sasl.client.callback.handler.class",
        _java_default(
            "SaslClientCallbackHandler",
            "IAMClientCallbackHandler",
            instead="the options sasl.username and sasl.password, or "
            f"{OAUTH}.token.provider=<a function>",
        ),
        None,
        "Java's and Amazon's own only.",
    ),
    Option(
        "sasl.login.callback.handler.class",
        _java_default(
            *("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"),
            *("IAMOAuthBearerLoginCallbackHandler", "AbstractLogin$DefaultLoginCallbackHandler"),
            instead=f"{OAUTH}.token.provider=<a function>",
        ),
        None,
        "Java's and Amazon's own only.",
    ),
    Option(
        "sasl.login.class",
        _java_default(
            *("DefaultLogin", "KerberosLogin", "OAuthBearerRefreshingLogin"),
            instead=f"{OAUTH}.token.provider=<a function>",
        ),
        None,
        "Java's own only.",
    ),
    Option(f"{LOGIN}.refresh.window.factor", number(0.5, 1), 0.8, "When a token is renewed."),
    Option(f"{LOGIN}.refresh.window.jitter", number(0, 0.25), 0.05, "… and how evenly spread."),
    Option(
        f"{LOGIN}.refresh.min.period.seconds", number(0, 900), 60.0, "Least time between renewals."
    ),
    Option(
        f"{LOGIN}.refresh.buffer.seconds", number(0, 3600), 300.0, "Least time left of a token."
    ),
    Option(
        f"{LOGIN}.connect.timeout.ms", optional(milliseconds()), None, "For the token endpoint."
    ),
    Option(f"{LOGIN}.read.timeout.ms", optional(milliseconds()), None, "For the token endpoint."),
    Option(f"{LOGIN}.retry.backoff.ms", milliseconds(), 0.1, "First wait before it is asked again"),
    Option(f"{LOGIN}.retry.backoff.max.ms", milliseconds(), 10.0, "Longest such wait."),
    Option("sasl.kerberos.service.name", text, "kafka", "The brokers' Kerberos service."),
    Option("sasl.kerberos.principal", optional(text), None, "Who logs in."),
    Option("sasl.kerberos.keytab", optional(path), None, "The file with that one's keys."),
    Option("sasl.kerberos.ticket.cache", optional(path), None, "The file with tickets."),
)

_OAUTHBEARER = (
    Option(
        f"{OAUTH}.token.provider",
        optional(provider),
        None,
        "A function that gives (token, its end in seconds since 1970); never a text.",
    ),
    Option(
        f"{OAUTH}.method",
        choice("default", "oidc", "aws_msk_iam", "unsecured"),
        "default",
        "Where tokens come from; what else is given says it as well.",
    ),
    Option(
        "enable.sasl.oauthbearer.unsecure.jwt",
        boolean,
        False,
        f"Tokens without a signature, for tests, with the claims in {OAUTH}.config.",
    ),
    Option(f"{OAUTH}.config", optional(secret), None, "The argument of oauth_cb."),
    Option(
        f"{OAUTH}.unsecured",
        optional(pairs),
        None,
        "Claims of tokens without a signature, for tests: StringClaim_sub=… and so on.",
    ),
    Option(f"{OAUTH}.token.endpoint.url", optional(text), None, "Who gives tokens.", kip="KIP-768"),
    Option(f"{OAUTH}.client.credentials.client.id", optional(text), None, "Who asks for them."),
    Option(f"{OAUTH}.client.credentials.client.secret", optional(secret), None, "Its secret."),
    Option(f"{OAUTH}.scope", optional(text), None, "What the token is asked for."),
    Option(f"{OAUTH}.extensions", pairs, {}, "Told to the broker: key=value, …", kip="KIP-342"),
    Option(f"{OAUTH}.header.urlencode", boolean, False, "As RFC 6749 wants it.", kip="KIP-1025"),
    Option(
        f"{OAUTH}.grant.type",
        optional(choice("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer")),
        None,
        "With an assertion it is the second by itself.",
    ),
    Option(f"{OAUTH}.assertion.file", optional(path), None, "An assertion that is there already."),
    Option(f"{OAUTH}.assertion.algorithm", upper("RS256", "ES256"), "RS256", "How it is signed."),
    Option(f"{OAUTH}.assertion.private.key.file", optional(path), None, "What it is signed with."),
    Option(f"{OAUTH}.assertion.private.key.pem", optional(secret_pem), None, "The same as PEM."),
    Option(f"{OAUTH}.assertion.private.key.passphrase", optional(secret), None, "Of that key."),
    Option(f"{OAUTH}.assertion.claim.iss", optional(text), None, "Claim iss."),
    Option(f"{OAUTH}.assertion.claim.sub", optional(text), None, "Claim sub."),
    Option(f"{OAUTH}.assertion.claim.aud", optional(text), None, "Claim aud."),
    Option(f"{OAUTH}.assertion.claim.exp.seconds", integer(1, INT_MAX), 300, "Its life."),
    Option(f"{OAUTH}.assertion.claim.nbf.seconds", integer(0, INT_MAX), 60, "Valid before now."),
    Option(f"{OAUTH}.assertion.claim.jti.include", boolean, False, "A random claim jti."),
    Option(
        f"{OAUTH}.jwt.retriever.class",
        _java_default(
            *("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"),
            instead=f"{OAUTH}.token.provider=<a function>",
        ),
        None,
        "Java's own only.",
    ),
)

_MSK_IAM = tuple(
    Option(f"{IAM}.{name}", optional(secret if hidden else text), None, doc)
    for name, hidden, doc in (
        ("profile", False, "The profile of AWS's files to take credentials from."),
        ("region", False, "The region, where the brokers' names don't tell it."),
        ("access.key.id", False, "Credentials given here."),
        ("secret.access.key", True, "… their secret part."),
        ("session.token", True, "… the token of temporary ones."),
        ("role.arn", False, "A role to take on."),
        ("role.session.name", False, "The name of that session."),
        ("role.external.id", False, "The role's external id."),
        ("role.access.key.id", False, "Credentials to take the role on with."),
        ("role.secret.access.key", True, "… their secret part."),
        ("role.session.token", True, "… the token of temporary ones."),
        ("sts.region", False, "The region of the service that gives roles."),
    )
)

_IGNORED = tuple(
    Option(name, _ignored(why), None, f"Changes nothing: {why}.") for name, why in IGNORED.items()
)

SECURITY_OPTIONS: dict[str, Option] = {
    o.name: o for o in (*_TRANSPORT, *_PROXY, *_SASL, *_OAUTHBEARER, *_MSK_IAM, *_IGNORED)
}

SECRETS = frozenset(
    (
        *("ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"),
        *("ssl.keystore.key", "sasl.password", "sasl.jaas.config", "proxy.url"),
        *("https.ca.password", f"{OAUTH}.config"),
        f"{OAUTH}.client.credentials.client.secret",
        f"{OAUTH}.assertion.private.key.pem",
        f"{OAUTH}.assertion.private.key.passphrase",
        *(f"{IAM}.secret.access.key", f"{IAM}.session.token"),
        *(f"{IAM}.role.secret.access.key", f"{IAM}.role.session.token"),
    )
)
"""Options whose values are `Secret` from the first moment on."""
