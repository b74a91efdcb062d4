"""Define the security options by Kafka's names.

Out: `SECURITY_OPTIONS`, which `table` combines with the others; `SECRETS`, the names whose values
are kept as `Secret`. Other clients' names of these options are in `option_aliases`; checks that
involve several options, and the meaning of `sasl.jaas.config`, are in `common.security`. Must not:
store values of a client.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ConfigurationError, UnsupportedOptionError
from odradek.common.options.security_values import (
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
from odradek.common.options.values import (
    INT_MAX,
    Option,
    Parse,
    boolean,
    choice,
    integer,
    milliseconds,
    reads,
    sent_name,
    text,
    unset,
)

OAUTH = "sasl.oauthbearer"
IAM = "sasl.aws.msk.iam"
LOGIN = "sasl.login"


def _ignored(why: str) -> Parse[str]:
    """Read an option of Java or librdkafka without effect here; `common.security` warns of it."""

    @reads("any", write=str)
    def parse(name: str, value: Any) -> str:
        return why

    return parse


TOKEN_FUNCTION = f"{OAUTH}.token.provider=<a function>"
JAVAS_OWN = (
    "Java's own classes are accepted and have no effect. Any other class is refused, because "
    "Python can't run it."
)


def _java_default(*defaults: str, instead: str = TOKEN_FUNCTION) -> Parse[str | None]:
    """Read a Java class name that has no effect here; raise unless it is the given default."""

    @reads("class name", ", ".join(defaults))
    def parse(name: str, value: Any) -> str | None:
        if not str(value).strip():
            return None
        short = str(value).encode("utf-8", "backslashreplace").decode().strip().rpartition(".")[2]
        if short not in defaults:
            raise UnsupportedOptionError(
                f"{name}: Python can't run the Java class {short}; use {instead}"
            )
        return short

    return parse


def _text_or_list(name: str, value: Any) -> str:
    if isinstance(value, str):
        return text(name, value)
    found = names(name, value)
    if len(found) != 1:
        raise ConfigurationError(f"{name} must name exactly one mechanism, not {len(found)}")
    return found[0]


@reads("word", ", ".join(MECHANISMS))
def _mechanism(name: str, value: Any) -> str:
    found = _text_or_list(name, value).strip().upper()
    if found not in MECHANISMS:
        raise ConfigurationError(f"{name} must be one of {', '.join(MECHANISMS)}, not {found!r}")
    return found


JVM = "it selects a component of the JVM; this client uses OpenSSL"
CHECKED = "only brokers validate tokens"
TICKETS = "the client fetches tickets when a connection needs one"
IGNORED: dict[str, str] = {
    "ssl.provider": JVM,
    "security.providers": JVM,
    "ssl.secure.random.implementation": JVM,
    "ssl.keymanager.algorithm": JVM,
    "ssl.trustmanager.algorithm": JVM,
    "sasl.kerberos.kinit.cmd": "no command is run; the client reads the keytab or the ticket "
    "cache directly",
    "sasl.kerberos.min.time.before.relogin": TICKETS,
    "sasl.kerberos.ticket.renew.jitter": TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": TICKETS,
    **{
        f"{OAUTH}.{name}": CHECKED
        for name in (
            *(
                "clock.skew.seconds",
                "expected.audience",
                "expected.issuer",
                "jwks.endpoint.refresh.ms",
            ),
            *("jwks.endpoint.retry.backoff.ms", "jwks.endpoint.retry.backoff.max.ms"),
            *("jwks.endpoint.url", "scope.claim.name", "sub.claim.name", "jwt.validator.class"),
        )
    },
}
"""Options without effect, by name, each with the reason that the warning contains."""

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
"""Names of options whose values are wrapped in `Secret` before any other processing."""


_TRANSPORT = (
    Option("security.protocol", upper(*PROTOCOLS), "PLAINTEXT", "medium").says(
        "The client connects without TLS and SASL (PLAINTEXT), with TLS (SSL), with SASL over "
        "TLS (SASL_SSL), or with SASL without TLS (SASL_PLAINTEXT)."
    ),
    Option("security.protocol.probe.enable", boolean, False).says(
        "With true, if a broker closes the connection during the TLS handshake without an alert, "
        "the next connection attempt asks in plaintext whether the port expects TLS. It sends "
        "ApiVersions only, no credentials. A port without TLS is then reported immediately."
    ),
    unset("ssl.truststore.location", path, "high").says(
        "The client trusts the certificates in this PEM, PKCS12 or JKS file, or in this folder "
        "of PEM files with OpenSSL's hashed names. If neither this nor "
        "ssl.truststore.certificates is set, it trusts the system's certificates."
    ),
    unset("ssl.truststore.password", secret, "high").says(
        "This password opens the store at ssl.truststore.location, if the store has one."
    ),
    unset("ssl.truststore.type", store_type, "medium", java="JKS").says(
        "This is the type of the store at ssl.truststore.location: JKS, PKCS12 or PEM. It has no "
        "effect, because the client detects the type from the file's content.",
        why="The client detects the type from the file's content.",
    ),
    unset("ssl.truststore.certificates", pem, "high", "KIP-651").says(
        "The client trusts these certificates, passed as PEM text instead of a file."
    ),
    unset("ssl.keystore.location", path, "high").says(
        "This PEM, PKCS12 or JKS file contains the client's private key and certificates."
    ),
    unset("ssl.keystore.password", secret, "high").says(
        "This password opens the store at ssl.keystore.location, if the store has one."
    ),
    unset("ssl.keystore.type", store_type, "medium", java="JKS").says(
        "This is the type of the store at ssl.keystore.location: JKS, PKCS12 or PEM. It has no "
        "effect, because the client detects the type from the file's content.",
        why="The client detects the type from the file's content.",
    ),
    unset("ssl.keystore.key", secret_pem, "high", "KIP-651").says(
        "This is the client's private key as PEM text. Set the certificates with "
        "ssl.keystore.certificate.chain or ssl.certificate.location."
    ),
    unset("ssl.keystore.certificate.chain", pem, "high", "KIP-651").says(
        "These are the client's certificates as PEM text, the client's own first. Set the key "
        "with ssl.keystore.key or ssl.key.location."
    ),
    unset("ssl.key.password", secret, "high").says(
        "This password decrypts the client's private key, regardless of which option contains "
        "the key."
    ),
    unset("ssl.certificate.location", path).says(
        "This PEM file contains the client's certificates, the client's own first. The key is in "
        "the same file, or in the file of ssl.key.location."
    ),
    unset("ssl.key.location", path).says(
        "This PEM file contains the client's private key. Set the certificates with "
        "ssl.certificate.location or ssl.keystore.certificate.chain."
    ),
    unset("ssl.crl.location", path).says(
        "The client refuses a broker whose certificate is in this PEM file of revoked "
        "certificates (CRL). Only the broker's own certificate is checked, not those of the "
        "authorities above it; the file needs the current list of each authority that signed one."
    ),
    Option(
        "ssl.protocol",
        upper("TLS", "TLSV1.2", "TLSV1.3", hint=" (older versions aren't supported)"),
        "TLS",
        "medium",
        java="TLSv1.3",
    ).says(
        "With TLSv1.2, the client uses no newer version; with TLS and TLSv1.3, "
        "ssl.enabled.protocols decides.",
        why="TLS and TLSv1.3 mean the same: client and broker use the newest version that both "
        "support.",
    ),
    Option("ssl.enabled.protocols", names, ("TLSv1.2", "TLSv1.3"), "medium").says(
        "The client accepts these versions of TLS: TLSv1.2, TLSv1.3 or both. Older versions "
        "aren't supported."
    ),
    unset("ssl.cipher.suites", ciphers).says(
        "The client offers these cipher suites, by Java's or OpenSSL's names, or as an OpenSSL "
        "cipher string. Python can't select the cipher suites of TLS 1.3."
    ),
    Option("ssl.endpoint.identification.algorithm", endpoint_identification, "https").says(
        "With https, a broker's certificate must match its host name. With none or an empty "
        "text, the client accepts a certificate for any host and logs a warning."
    ),
    Option("enable.ssl.certificate.verification", boolean, True).says(
        "With false, the client doesn't verify certificates, so that any server can impersonate "
        "a broker: use it for tests only."
    ),
    unset("ssl.keylog.file", path).says(
        "The client writes the keys of its TLS connections to this file, for Wireshark; with the "
        "value SSLKEYLOGFILE, to the file in the environment variable of that name. With this "
        "file, the traffic can be decrypted."
    ),
    unset("ssl.context", tls_context).says(
        "The client uses this ssl.SSLContext unchanged. Other TLS options are refused together "
        "with it."
    ),
    unset(
        "ssl.engine.factory.class",
        _java_default("DefaultSslEngineFactory", instead="ssl.context=<an ssl.SSLContext>"),
    ).says(
        "Java's own class is accepted and has no effect. Any other class is refused, because "
        "Python can't run it."
    ),
    unset("https.ca.location", path).says(
        "The client trusts token servers whose certificate is signed by one in this file (PEM, "
        "PKCS12, JKS) or folder. If neither this nor https.ca.pem is set, it trusts the system's "
        "certificates."
    ),
    unset("https.ca.password", secret).says(
        "This password opens the store at https.ca.location, if the store has one."
    ),
    unset("https.ca.pem", pem).says(
        "The client trusts token servers whose certificate is signed by one of these, passed as "
        "PEM text."
    ),
)

_SASL = (
    unset("sasl.mechanism", _mechanism, "medium", java="GSSAPI", librdkafka="GSSAPI").says(
        "The client authenticates with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI "
        "(Kerberos) or AWS_MSK_IAM. If this isn't set, the client derives it from "
        "sasl.jaas.config or from a token option; without those it is GSSAPI.",
        why="Other options often imply the mechanism; GSSAPI is assumed only if none does.",
    ),
    unset("sasl.username", sent_name, "high").says(
        "The client authenticates as this user, with PLAIN and SCRAM."
    ),
    unset("sasl.password", secret, "high").says(
        "The client authenticates with this password, with PLAIN and SCRAM."
    ),
    unset("sasl.jaas.config", secret, "medium", "KIP-85").says(
        "This is a JAAS login module with its options, as in the configuration of Java's "
        "clients. It is translated to the equivalent options of this client."
    ),
    Option("sasl.scram.tokenauth", boolean, False, kip="KIP-48").says(
        "With true, sasl.username and sasl.password are the id and the HMAC of a delegation token."
    ),
    unset(
        "sasl.client.callback.handler.class",
        _java_default(
            "SaslClientCallbackHandler",
            "IAMClientCallbackHandler",
            instead="the options sasl.username and sasl.password, or "
            f"{OAUTH}.token.provider=<a function>",
        ),
        "medium",
    ).says(
        "Java's and Amazon's own classes are accepted and have no effect. Any other class is "
        "refused, because Python can't run it."
    ),
    unset(
        "sasl.login.callback.handler.class",
        _java_default(
            *("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"),
            *("IAMOAuthBearerLoginCallbackHandler", "AbstractLogin$DefaultLoginCallbackHandler"),
        ),
        "medium",
    ).says(
        "Java's and Amazon's own classes are accepted; those for AWS and for unsigned tokens "
        f"select that source, as {OAUTH}.method does. Any other class is refused, because Python "
        "can't run it."
    ),
    unset(
        "sasl.login.class",
        _java_default(*("DefaultLogin", "KerberosLogin", "OAuthBearerRefreshingLogin")),
        "medium",
    ).says(JAVAS_OWN),
    Option(f"{LOGIN}.refresh.window.factor", number(0.5, 1), 0.8).says(
        "The client requests a new token after this share of the current token's lifetime."
    ),
    Option(f"{LOGIN}.refresh.window.jitter", number(0, 0.25), 0.05).says(
        "The client delays the request for a new token by a random time of up to this share of "
        "the current token's lifetime, so that clients don't all send it at once."
    ),
    Option(f"{LOGIN}.refresh.min.period.seconds", number(0, 900), 60.0).says(
        "The client waits at least this many seconds between two requests for a token, unless "
        "the token's lifetime is too short for that."
    ),
    Option(f"{LOGIN}.refresh.buffer.seconds", number(0, 3600), 300.0).says(
        "The client requests a new token at least this many seconds before the current one "
        "expires, unless the token's lifetime is too short for that."
    ),
    unset(f"{LOGIN}.connect.timeout.ms", milliseconds()).says(
        "The client waits at most this many milliseconds for a connection to the token server. "
        "If this isn't set, only the limit for the whole token request applies, 60 % of "
        "socket.connection.setup.timeout.ms."
    ),
    unset(f"{LOGIN}.read.timeout.ms", milliseconds()).says(
        "The client waits at most this many milliseconds for data from the token server. If this "
        "isn't set, only the limit for the whole token request applies, 60 % of "
        "socket.connection.setup.timeout.ms."
    ),
    Option(f"{LOGIN}.retry.backoff.ms", milliseconds(), 0.1).says(
        "The client waits this many milliseconds before it retries a failed request to the token "
        "server; the wait doubles with each failure."
    ),
    Option(f"{LOGIN}.retry.backoff.max.ms", milliseconds(), 10.0).says(
        "The client waits at most this many milliseconds before it retries a failed request to "
        "the token server."
    ),
    Option("sasl.kerberos.service.name", text, "kafka", "medium", java="none").says(
        "This is the Kerberos service name of the brokers: the first part of their principal.",
        why="The default is librdkafka's; Java has none, and doesn't start without a name.",
    ),
    unset("sasl.kerberos.principal", text, librdkafka="kafkaclient").says(
        "The client authenticates as this principal. If this isn't set, the keytab or the ticket "
        "cache determines it.",
        why="The keytab or the ticket cache contains the name; Java has no such option.",
    ),
    unset("sasl.kerberos.keytab", path).says(
        "This file contains the keys of the client's principal. The client gets tickets with "
        "them and keeps the tickets in memory; kinit isn't needed."
    ),
    unset("sasl.kerberos.ticket.cache", path).says(
        "This file contains the client's tickets. If neither this nor sasl.kerberos.keytab is "
        "set, krb5.conf determines the ticket cache."
    ),
)

_OAUTHBEARER = (
    unset(f"{OAUTH}.token.provider", provider).says(
        "This function returns a token and its expiry time, in seconds since 1970; an object "
        "with token() works too. It can't be a string, because configuration never names code to "
        "run."
    ),
    Option(
        f"{OAUTH}.method", choice("default", "oidc", "aws_msk_iam", "unsecured"), "default"
    ).says(
        "Tokens come from a token server (oidc) or from AWS credentials (aws_msk_iam), or the "
        "client creates unsigned ones (unsecured). With default, the other options determine the "
        "source. A function in sasl.oauthbearer.token.provider takes precedence over this option."
    ),
    Option("enable.sasl.oauthbearer.unsecure.jwt", boolean, False).says(
        "With true, the client creates unsigned tokens, for tests, with the claims in "
        f"{OAUTH}.config."
    ),
    unset(f"{OAUTH}.config", secret).says(
        "A token function with a parameter gets this text; or it has the claims (principal=… "
        "scope=…) for enable.sasl.oauthbearer.unsecure.jwt."
    ),
    unset(f"{OAUTH}.unsecured", pairs, kip="KIP-255").says(
        "The client creates unsigned tokens, for tests, with these claims: "
        "StringClaim_sub=alice, and so on, as in Java's unsecuredLogin options."
    ),
    unset(f"{OAUTH}.token.endpoint.url", text, "medium", "KIP-768").says(
        "The client requests tokens from the token server at this http or https URL, or reads "
        "them from a file (file:///…) that the environment variable ODRADEK_ALLOWED_FILES allows."
    ),
    unset(f"{OAUTH}.client.credentials.client.id", text, "medium", "KIP-1139").says(
        "The client authenticates to the token server with this id."
    ),
    unset(f"{OAUTH}.client.credentials.client.secret", secret, "medium", "KIP-1139").says(
        "The client authenticates to the token server with this secret."
    ),
    unset(f"{OAUTH}.scope", text, "medium", "KIP-1139").says(
        "The client requests tokens with this scope from the token server."
    ),
    unset(f"{OAUTH}.audience", text).says(
        "The client requests tokens for this audience from the token server, in the form's field "
        "audience. Servers such as Auth0 require it; others take the audience from the scope. "
        "Strimzi's oauth.audience in sasl.jaas.config means the same."
    ),
    Option(f"{OAUTH}.extensions", pairs, {}, kip="KIP-342").says(
        "The client sends these pairs to the broker with the token (SASL extensions)."
    ),
    Option(f"{OAUTH}.header.urlencode", boolean, False, kip="KIP-1025").says(
        "With true, client id and secret are percent-encoded in requests to the token server, as "
        "RFC 6749 requires."
    ),
    unset(
        f"{OAUTH}.grant.type",
        choice("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        librdkafka="client_credentials",
    ).says(
        "The values client_credentials and urn:ietf:params:oauth:grant-type:jwt-bearer are "
        "accepted and have no effect: the client uses the second one if an assertion is "
        "configured, and the first one otherwise.",
        why="Other options determine the grant type.",
    ),
    unset(f"{OAUTH}.assertion.file", path, "medium", "KIP-1139").says(
        "This file contains the assertion for the token server. Another program has to renew the "
        "file, and the environment variable ODRADEK_ALLOWED_FILES has to allow it."
    ),
    Option(
        f"{OAUTH}.assertion.algorithm", upper("RS256", "ES256"), "RS256", "medium", "KIP-1139"
    ).says(
        "The client signs its assertion with this algorithm: RS256 with an RSA key, ES256 with a "
        "key on the curve P-256."
    ),
    unset(f"{OAUTH}.assertion.private.key.file", path, "medium", "KIP-1139").says(
        "The client signs its assertion with the private key in this PEM file, which the "
        "environment variable ODRADEK_ALLOWED_FILES has to allow."
    ),
    unset(f"{OAUTH}.assertion.private.key.pem", secret_pem).says(
        "The client signs its assertion with this private key, passed as PEM text."
    ),
    unset(f"{OAUTH}.assertion.private.key.passphrase", secret, "medium", "KIP-1139").says(
        "This passphrase decrypts the private key that signs the assertion."
    ),
    *(
        unset(f"{OAUTH}.assertion.claim.{claim}", text, "medium", "KIP-1139").says(
            f"The client's assertion has this text as its {claim} claim ({meaning})."
        )
        for claim, meaning in (("iss", "issuer"), ("sub", "subject"), ("aud", "audience"))
    ),
    Option(f"{OAUTH}.assertion.claim.exp.seconds", integer(1, INT_MAX), 300, kip="KIP-1139").says(
        "The client's assertion expires this many seconds after it is created (exp claim)."
    ),
    Option(f"{OAUTH}.assertion.claim.nbf.seconds", integer(0, INT_MAX), 60, kip="KIP-1139").says(
        "The client's assertion is valid from this many seconds before it is created (nbf "
        "claim), because clocks differ."
    ),
    Option(f"{OAUTH}.assertion.claim.jti.include", boolean, False, "medium", "KIP-1139").says(
        "With true, each assertion has a random id (jti claim)."
    ),
    unset(
        f"{OAUTH}.jwt.retriever.class",
        _java_default(
            *("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever")
        ),
        "medium",
        "KIP-1139",
        java="DefaultJwtRetriever",
    ).says(JAVAS_OWN, why="Other options determine where tokens come from."),
)

_AWS = {
    "profile": "The client takes its AWS credentials from this profile of AWS's configuration "
    "files (needs odradek[aws]).",
    "region": "The client signs requests for this AWS region. If this isn't set, the client "
    "takes the region from the brokers' host names, AWS_REGION, AWS_DEFAULT_REGION or the "
    "profile.",
    "access.key.id": "This is the id of the AWS credentials that sign requests. If this isn't "
    "set, the client uses the credentials of AWS_ACCESS_KEY_ID, or those that botocore finds "
    "(needs odradek[aws]).",
    "secret.access.key": f"This is the secret access key of {IAM}.access.key.id.",
    "session.token": f"This is the session token of {IAM}.access.key.id, if those credentials are "
    "temporary.",
    "role.arn": "The client assumes this AWS role before it signs requests (needs odradek[aws]).",
    "role.session.name": f"The session of {IAM}.role.arn has this name; the default is odradek.",
    "role.external.id": f"The client passes this external id when it assumes {IAM}.role.arn.",
    "role.access.key.id": f"This is the id of the AWS credentials that assume {IAM}.role.arn. If "
    f"this isn't set, the client uses those of {IAM}.access.key.id, or those that botocore "
    "finds.",
    "role.secret.access.key": f"This is the secret access key of {IAM}.role.access.key.id.",
    "role.session.token": f"This is the session token of {IAM}.role.access.key.id, if those "
    "credentials are temporary.",
    "sts.region": f"The client assumes {IAM}.role.arn through the STS endpoint of this AWS region.",
}
_MSK_IAM = tuple(
    unset(f"{IAM}.{name}", secret if f"{IAM}.{name}" in SECRETS else text).says(doc)
    for name, doc in _AWS.items()
)

_IGNORED = tuple(
    Option(name, _ignored(why), None).says(f"This option is accepted and has no effect: {why}.")
    for name, why in IGNORED.items()
)

SECURITY_OPTIONS = (*_TRANSPORT, *_SASL, *_OAUTHBEARER, *_MSK_IAM, *_IGNORED)
