"""The options of security: each is here once, by Kafka's name.

Out: `SECURITY_OPTIONS`, which `options` adds to the others; `SECRETS`, the names whose values are
kept as `Secret`. Other clients' names for the same are in `spellings`, the rules between options
and what `sasl.jaas.config` means in `security`. Must not: hold values of a client.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
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
    """An option of Java's or librdkafka's that changes nothing here; `security` warns of it."""

    @reads("any", write=str)
    def parse(name: str, value: Any) -> str:
        return why

    return parse


TOKEN_FUNCTION = f"{OAUTH}.token.provider=<a function>"
JAVAS_OWN = (
    "Java's own classes are accepted here and change nothing; any other is refused, since it can't "
    "run here."
)


def _java_default(*defaults: str, instead: str = TOKEN_FUNCTION) -> Parse[str | None]:
    """A Java class that can't run here, except where it is Java's own (by the name's last part)."""

    @reads("class name", ", ".join(defaults))
    def parse(name: str, value: Any) -> str | None:
        if not str(value).strip():
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


@reads("word", ", ".join(MECHANISMS))
def _mechanism(name: str, value: Any) -> str:
    found = _text_or_list(name, value).strip().upper()
    if found not in MECHANISMS:
        raise ConfigurationError(f"{name} must be one of {', '.join(MECHANISMS)}, not {found!r}")
    return found


JVM = "it chooses among parts of the Java machine; OpenSSL does that work here"
CHECKED = "the broker checks the token"
TICKETS = "tickets are taken when a connection needs one"
IGNORED: dict[str, str] = {
    "ssl.provider": JVM,
    "security.providers": JVM,
    "ssl.secure.random.implementation": JVM,
    "ssl.keymanager.algorithm": JVM,
    "ssl.trustmanager.algorithm": JVM,
    "sasl.kerberos.kinit.cmd": "no command is run; keytab or ticket cache are read directly",
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
"""Options that are taken and change nothing, each with the reason that the warning gives."""

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


_TRANSPORT = (
    Option("security.protocol", upper(*PROTOCOLS), "PLAINTEXT", "medium").says(
        "The client speaks to brokers without TLS and SASL (PLAINTEXT), in TLS (SSL), or with "
        "SASL, in TLS (SASL_SSL) or without (SASL_PLAINTEXT)."
    ),
    Option("security.protocol.probe.enable", boolean, False).says(
        "With true a port that ended a TLS handshake without a word is asked in plaintext by the "
        "next dial (ApiVersions alone, no credential), so that a port without TLS is told at once."
    ),
    unset("ssl.truststore.location", path, "high").says(
        "The client trusts the certificates in this PEM, PKCS12 or JKS file, or in this folder of "
        "PEM files with OpenSSL's hashed names. Without it and ssl.truststore.certificates it "
        "trusts whom the system trusts."
    ),
    unset("ssl.truststore.password", secret, "high").says(
        "This password opens the store at ssl.truststore.location, where it has one."
    ),
    unset("ssl.truststore.type", store_type, "medium", java="JKS").says(
        "The store at ssl.truststore.location is of the type JKS, PKCS12 or PEM. The content of "
        "the file tells by itself, so this changes nothing.",
        why="A file says by its content what it is.",
    ),
    unset("ssl.truststore.certificates", pem, "high", "KIP-651").says(
        "The client trusts these certificates, given as PEM text instead of a file."
    ),
    unset("ssl.keystore.location", path, "high").says(
        "The client's own key and certificates are in this PEM, PKCS12 or JKS file."
    ),
    unset("ssl.keystore.password", secret, "high").says(
        "This password opens the store at ssl.keystore.location, where it has one."
    ),
    unset("ssl.keystore.type", store_type, "medium", java="JKS").says(
        "The store at ssl.keystore.location is of the type JKS, PKCS12 or PEM. The content of the "
        "file tells by itself, so this changes nothing.",
        why="A file says by its content what it is.",
    ),
    unset("ssl.keystore.key", secret_pem, "high", "KIP-651").says(
        "The client's private key, given as PEM text instead of a file, goes with "
        "ssl.keystore.certificate.chain or ssl.certificate.location."
    ),
    unset("ssl.keystore.certificate.chain", pem, "high", "KIP-651").says(
        "The client's certificates are given as PEM text, its own first; the key is that of "
        "ssl.keystore.key or ssl.key.location."
    ),
    unset("ssl.key.password", secret, "high").says(
        "This password decrypts the client's private key, wherever the key is given."
    ),
    unset("ssl.certificate.location", path).says(
        "The client's certificates are in this PEM file, its own first; the key is in the same "
        "file, or in that of ssl.key.location."
    ),
    unset("ssl.key.location", path).says(
        "The client's private key is in this PEM file; ssl.certificate.location or "
        "ssl.keystore.certificate.chain gives the certificates."
    ),
    unset("ssl.crl.location", path).says(
        "A broker whose certificate is in this PEM file's list of revoked ones is refused."
    ),
    Option(
        "ssl.protocol",
        upper("TLS", "TLSV1.2", "TLSV1.3", hint=" (older ones aren't spoken)"),
        "TLS",
        "medium",
        java="TLSv1.3",
    ).says(
        "With TLSv1.2 no newer version is spoken; TLS and TLSv1.3 leave the choice to "
        "ssl.enabled.protocols.",
        why="It means the same: both speak the newest version that the broker speaks, too.",
    ),
    Option("ssl.enabled.protocols", names, ("TLSv1.2", "TLSv1.3"), "medium").says(
        "The client speaks these versions of TLS: TLSv1.2, TLSv1.3 or both. Older ones are never "
        "spoken."
    ),
    unset("ssl.cipher.suites", ciphers).says(
        "The client offers these cipher suites, by Java's or OpenSSL's names, or by a cipher "
        "string of OpenSSL's. Among those of TLS 1.3 Python can't choose."
    ),
    Option("ssl.endpoint.identification.algorithm", endpoint_identification, "https").says(
        "With https a broker's certificate must be for its host name; none or an empty text "
        "takes a certificate for any host, of which a warning tells."
    ),
    Option("enable.ssl.certificate.verification", boolean, True).says(
        "With false anybody can pass for a broker, since no certificate is checked: for tests only."
    ),
    unset("ssl.keylog.file", path).says(
        "The keys of TLS connections are written to this file, for Wireshark; with the value "
        "SSLKEYLOGFILE to the file that the variable of that name gives. Whoever has the file can "
        "read everything."
    ),
    unset("ssl.context", tls_context).says(
        "The client uses this ssl.SSLContext as it is, and refuses other options of TLS beside it."
    ),
    unset(
        "ssl.engine.factory.class",
        _java_default("DefaultSslEngineFactory", instead="ssl.context=<an ssl.SSLContext>"),
    ).says(
        "Java's own class is accepted here and changes nothing; any other is refused, since it "
        "can't run here."
    ),
    unset("https.ca.location", path).says(
        "A token server is trusted if one of the certificates in this file (PEM, PKCS12, JKS) or "
        "folder vouches for it. Without it and https.ca.pem those of the system count."
    ),
    unset("https.ca.password", secret).says(
        "This password opens the store at https.ca.location, where it has one."
    ),
    unset("https.ca.pem", pem).says(
        "A token server is trusted if one of these certificates, given as PEM text, vouches for it."
    ),
)

_SASL = (
    unset("sasl.mechanism", _mechanism, "medium", java="GSSAPI", librdkafka="GSSAPI").says(
        "The client logs in by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI (Kerberos) "
        "or AWS_MSK_IAM. Where it isn't given, sasl.jaas.config or a source of tokens decides; "
        "with neither it is GSSAPI.",
        why="What else is given often says it; only where nothing does, GSSAPI is assumed.",
    ),
    unset("sasl.username", sent_name, "high").says(
        "The client logs in as this user, with PLAIN and SCRAM."
    ),
    unset("sasl.password", secret, "high").says(
        "The client logs in with this password, with PLAIN and SCRAM."
    ),
    unset("sasl.jaas.config", secret, "medium", "KIP-85").says(
        "A login module with its options, as Java's clients have it, says how to log in; it is "
        "read as if this client's own options said it."
    ),
    Option("sasl.scram.tokenauth", boolean, False, kip="KIP-48").says(
        "With true sasl.username and sasl.password are the id and the HMAC of a delegation token."
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
        "Java's and Amazon's own classes are accepted here and change nothing; any other is "
        "refused, since it can't run here."
    ),
    unset(
        "sasl.login.callback.handler.class",
        _java_default(
            *("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"),
            *("IAMOAuthBearerLoginCallbackHandler", "AbstractLogin$DefaultLoginCallbackHandler"),
        ),
        "medium",
    ).says(
        "Java's and Amazon's own classes are accepted; those for AWS and for tokens without a "
        f"signature choose that source, as {OAUTH}.method does. Any other is refused, since it "
        "can't run here."
    ),
    unset(
        "sasl.login.class",
        _java_default(*("DefaultLogin", "KerberosLogin", "OAuthBearerRefreshingLogin")),
        "medium",
    ).says(JAVAS_OWN),
    Option(f"{LOGIN}.refresh.window.factor", number(0.5, 1), 0.8).says(
        "A new token is asked for when this share of the old one's life is over."
    ),
    Option(f"{LOGIN}.refresh.window.jitter", number(0, 0.25), 0.05).says(
        "A new token is asked for up to this share of the old one's life later, by chance, so "
        "that not all clients ask at once."
    ),
    Option(f"{LOGIN}.refresh.min.period.seconds", number(0, 900), 60.0).says(
        "A new token is asked for no sooner than this many seconds after the last one came, "
        "unless its life is too short for that."
    ),
    Option(f"{LOGIN}.refresh.buffer.seconds", number(0, 3600), 300.0).says(
        "A new token is asked for at least this many seconds before the old one ends, unless its "
        "life is too short for that."
    ),
    unset(f"{LOGIN}.connect.timeout.ms", milliseconds()).says(
        "A connection to the token server may take this many milliseconds. Without it the time "
        "for the whole token counts, 60 % of socket.connection.setup.timeout.ms."
    ),
    unset(f"{LOGIN}.read.timeout.ms", milliseconds()).says(
        "The token server may be silent for this many milliseconds. Without it the time for the "
        "whole token counts, 60 % of socket.connection.setup.timeout.ms."
    ),
    Option(f"{LOGIN}.retry.backoff.ms", milliseconds(), 0.1).says(
        "A token server that failed is asked again after this many milliseconds; the wait doubles "
        "with each failure."
    ),
    Option(f"{LOGIN}.retry.backoff.max.ms", milliseconds(), 10.0).says(
        "A token server that failed is asked again after this many milliseconds at most."
    ),
    Option("sasl.kerberos.service.name", text, "kafka", "medium", java="none").says(
        "The brokers' service has this name in Kerberos: the first part of their principal.",
        why="It is librdkafka's default; Java has none, and refuses to start without a name.",
    ),
    unset("sasl.kerberos.principal", text, librdkafka="kafkaclient").says(
        "The client logs in as this principal. Without it the keytab or the ticket cache says "
        "which.",
        why="The keytab or the ticket cache knows the name; Java has no such option.",
    ),
    unset("sasl.kerberos.keytab", path).says(
        "The keys of the client's principal are in this file: tickets are taken with them into "
        "memory, without kinit."
    ),
    unset("sasl.kerberos.ticket.cache", path).says(
        "The client's tickets are in this file. Without it and sasl.kerberos.keytab they are "
        "where krb5.conf says."
    ),
)

_OAUTHBEARER = (
    unset(f"{OAUTH}.token.provider", provider).says(
        "This function gives a token and its end, in seconds since 1970; it may also be an object "
        "with token(). It is never a text, since settings name no code."
    ),
    Option(
        f"{OAUTH}.method", choice("default", "oidc", "aws_msk_iam", "unsecured"), "default"
    ).says(
        "Tokens come from a token server (oidc), from AWS credentials (aws_msk_iam), or are made "
        "here without a signature (unsecured); with default the other options say which. A "
        "function given as sasl.oauthbearer.token.provider goes before all."
    ),
    Option("enable.sasl.oauthbearer.unsecure.jwt", boolean, False).says(
        "With true tokens are made here without a signature, for tests, with the claims in "
        f"{OAUTH}.config."
    ),
    unset(f"{OAUTH}.config", secret).says(
        "This text is the argument of the token function, or holds the claims (principal=… "
        "scope=…) for enable.sasl.oauthbearer.unsecure.jwt."
    ),
    unset(f"{OAUTH}.unsecured", pairs, kip="KIP-255").says(
        "Tokens are made here without a signature, for tests, with these claims: "
        "StringClaim_sub=alice, and so on, as in Java's unsecuredLogin options."
    ),
    unset(f"{OAUTH}.token.endpoint.url", text, "medium", "KIP-768").says(
        "The token server at this http or https URL gives the tokens, or a file (file:///…) that "
        "the variable ODRADEK_ALLOWED_FILES allows."
    ),
    unset(f"{OAUTH}.client.credentials.client.id", text, "medium", "KIP-1139").says(
        "The client shows this id to the token server."
    ),
    unset(f"{OAUTH}.client.credentials.client.secret", secret, "medium", "KIP-1139").says(
        "The client shows this secret to the token server."
    ),
    unset(f"{OAUTH}.scope", text, "medium", "KIP-1139").says(
        "The token server is asked for a token with this scope."
    ),
    Option(f"{OAUTH}.extensions", pairs, {}, kip="KIP-342").says(
        "These pairs are told to the broker along with the token (SASL extensions)."
    ),
    Option(f"{OAUTH}.header.urlencode", boolean, False, kip="KIP-1025").says(
        "With true client id and secret are percent-encoded before they go to the token server, "
        "as RFC 6749 wants it."
    ),
    unset(
        f"{OAUTH}.grant.type",
        choice("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        librdkafka="client_credentials",
    ).says(
        "The values client_credentials and urn:ietf:params:oauth:grant-type:jwt-bearer are "
        "accepted and change nothing: with an assertion the second is used, else the first.",
        why="What else is given says which grant it is.",
    ),
    unset(f"{OAUTH}.assertion.file", path, "medium", "KIP-1139").says(
        "The assertion for the token server is in this file, which somebody else keeps fresh and "
        "the variable ODRADEK_ALLOWED_FILES allows."
    ),
    Option(
        f"{OAUTH}.assertion.algorithm", upper("RS256", "ES256"), "RS256", "medium", "KIP-1139"
    ).says(
        "The client signs its assertion by this algorithm: RS256 with an RSA key, ES256 with one "
        "of the curve P-256."
    ),
    unset(f"{OAUTH}.assertion.private.key.file", path, "medium", "KIP-1139").says(
        "The client signs its assertion with the private key in this PEM file, which the "
        "variable ODRADEK_ALLOWED_FILES allows."
    ),
    unset(f"{OAUTH}.assertion.private.key.pem", secret_pem).says(
        "The client signs its assertion with this private key, given as PEM text."
    ),
    unset(f"{OAUTH}.assertion.private.key.passphrase", secret, "medium", "KIP-1139").says(
        "This passphrase decrypts the private key that signs the assertion."
    ),
    *(
        unset(f"{OAUTH}.assertion.claim.{claim}", text, "medium", "KIP-1139").says(
            f"The client's assertion has this text as its claim {claim} ({meaning})."
        )
        for claim, meaning in (("iss", "issuer"), ("sub", "subject"), ("aud", "audience"))
    ),
    Option(f"{OAUTH}.assertion.claim.exp.seconds", integer(1, INT_MAX), 300, kip="KIP-1139").says(
        "The client's assertion ends this many seconds after it is made (claim exp)."
    ),
    Option(f"{OAUTH}.assertion.claim.nbf.seconds", integer(0, INT_MAX), 60, kip="KIP-1139").says(
        "The client's assertion counts from this many seconds before it is made (claim nbf), as "
        "clocks differ."
    ),
    Option(f"{OAUTH}.assertion.claim.jti.include", boolean, False, "medium", "KIP-1139").says(
        "With true each assertion has a random id of its own (claim jti)."
    ),
    unset(
        f"{OAUTH}.jwt.retriever.class",
        _java_default(
            *("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever")
        ),
        "medium",
        "KIP-1139",
        java="DefaultJwtRetriever",
    ).says(JAVAS_OWN, why="What else is given says where tokens come from."),
)

_AWS = {
    "profile": "Credentials come from this profile of AWS's files (odradek[aws]).",
    "region": "Requests are signed for this AWS region. Without it the brokers' names, AWS_REGION, "
    "AWS_DEFAULT_REGION or the profile say which.",
    "access.key.id": "Requests are signed with the AWS credentials of this id. Without it those of "
    "AWS_ACCESS_KEY_ID are used, or what botocore finds (odradek[aws]).",
    "secret.access.key": f"This is the secret part of {IAM}.access.key.id.",
    "session.token": f"Temporary credentials of {IAM}.access.key.id have this token.",
    "role.arn": "The client takes on this AWS role, and signs as it (odradek[aws]).",
    "role.session.name": f"The session of {IAM}.role.arn has this name; without it odradek.",
    "role.external.id": f"The role {IAM}.role.arn asks for this external id.",
    "role.access.key.id": f"The role {IAM}.role.arn is taken on with the credentials of this id. "
    f"Without it those of {IAM}.access.key.id, or what botocore finds, are used.",
    "role.secret.access.key": f"This is the secret part of {IAM}.role.access.key.id.",
    "role.session.token": f"Temporary credentials of {IAM}.role.access.key.id have this token.",
    "sts.region": f"The role {IAM}.role.arn is asked for in this AWS region.",
}
_MSK_IAM = tuple(
    unset(f"{IAM}.{name}", secret if f"{IAM}.{name}" in SECRETS else text).says(doc)
    for name, doc in _AWS.items()
)

_IGNORED = tuple(
    Option(name, _ignored(why), None).says(f"It is accepted and changes nothing: {why}.")
    for name, why in IGNORED.items()
)

SECURITY_OPTIONS = (*_TRANSPORT, *_SASL, *_OAUTHBEARER, *_MSK_IAM, *_IGNORED)
