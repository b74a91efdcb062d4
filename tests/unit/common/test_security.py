"""Test names, combinations, contradictions and secrets of the TLS and SASL options."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import Any

import pytest

from odradek.common.config import ADMIN, CONSUMER, PRODUCER, Config
from odradek.common.errors import ConfigurationError, KafkaError, UnsupportedFeatureError
from odradek.common.options.option_aliases import ALIASES, REFUSED
from odradek.common.options.security import IGNORED, SECRETS
from odradek.common.options.table import OPTIONS
from odradek.common.proxy import Proxy
from odradek.common.secret import Secret

BROKER = {"bootstrap.servers": "h:9092"}
PLANTED = "planted-Pa55"
OAUTH = "sasl.oauthbearer"
SSL, SASL = {"security.protocol": "SSL"}, {"security.protocol": "SASL_SSL"}
SCRAM = {**SASL, "sasl.mechanism": "SCRAM-SHA-512"}
MODULES = "org.apache.kafka.common.security"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
LOGIN = {"sasl.username": "u", "sasl.password": PLANTED}
PLAINTEXT = {**LOGIN, "security.protocol": "SASL_PLAINTEXT"}
SAME_HOST = "ssl.endpoint.identification.algorithm"
KEY = f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----"


def config(given: dict[str, Any], **keywords: Any) -> Config:
    return Config(ADMIN, {**BROKER, **given}, **keywords)


def jaas(module: str, rest: str) -> dict[str, Any]:
    return {**SASL, "sasl.jaas.config": f"{module} required {rest};"}


@pytest.mark.parametrize(
    "given",
    [
        {**SCRAM, "sasl.username": "alice", "sasl.password": PLANTED},
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "scram-sha-512",
            "sasl.username": "alice",
            "sasl.password": PLANTED,
        },
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PLANTED,
        },
        {
            **jaas(f"{MODULES}.scram.ScramLoginModule", f"username='alice' password='{PLANTED}'"),
            "sasl.mechanism": "SCRAM-SHA-512",
        },
        {**SCRAM, "sasl.username": "alice", "sasl.password": Secret(PLANTED)},
        {**SCRAM, "sasl.username": "alice", "sasl.password": PLANTED.encode()},
    ],
)
@pytest.mark.parametrize("client", [PRODUCER, CONSUMER, ADMIN])
def test_settings_of_java_librdkafka_and_python_clients_have_the_same_meaning(
    given: dict[str, Any], client: str
) -> None:
    found = Config(client, {**BROKER, **given})
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["sasl.username"] == "alice"
    assert found["sasl.password"].reveal() == PLANTED
    for shown in (repr(found), str(copy.deepcopy(found)), f"{found}"):
        assert PLANTED not in shown
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  our own
    assert isinstance(again["sasl.password"], Secret)
    assert again["sasl.password"] == found["sasl.password"]


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"ssl.ca.location": "/ca"}, "ssl.truststore.location", "/ca"),
        ({"ssl.ca.location": "probe"}, "ssl.truststore.location", None),
        ({"ssl_cafile": "/ca"}, "ssl.truststore.location", "/ca"),
        ({"ssl.ca.pem": PEM}, "ssl.truststore.certificates", PEM),
        ({"ssl.ca.pem": PEM.replace("\n", "\\n")}, "ssl.truststore.certificates", PEM),
        ({"ssl_certfile": "/c"}, "ssl.certificate.location", "/c"),
        ({"ssl_check_hostname": False}, SAME_HOST, ""),
        ({SAME_HOST: None}, SAME_HOST, "https"),
        ({"ssl_check_hostname": None}, SAME_HOST, "https"),
        ({"ssl_check_hostname": True}, SAME_HOST, "https"),
        ({SAME_HOST: "none"}, SAME_HOST, ""),
        ({SAME_HOST: "HTTPS"}, SAME_HOST, "https"),
        ({"ssl.cipher.suites": "A, B"}, "ssl.cipher.suites", ("A", "B")),
        ({"ssl_ciphers": "HIGH:!aNULL"}, "ssl.cipher.suites", "HIGH:!aNULL"),
        ({"ssl.truststore.type": "p12"}, "ssl.truststore.type", "PKCS12"),
        ({"ssl.keystore.type": "pem"}, "ssl.keystore.type", "PEM"),
        ({"ssl.engine.factory.class": "a.DefaultSslEngineFactory"}, "sasl.username", None),
    ],
)
def test_tls_options_are_parsed(given: dict[str, Any], name: str, value: Any) -> None:
    assert config({**SSL, **given})[name] == value


@pytest.mark.parametrize(
    ("given", "mechanism", "found"),
    [
        (
            jaas("shaded.PlainLoginModule", f"username=u password={PLANTED}"),
            "PLAIN",
            {"sasl.username": "u", "sasl.password": Secret(PLANTED)},
        ),
        (
            {
                **jaas("ScramLoginModule", f"username=u password={PLANTED} tokenauth='true'"),
                "sasl.mechanism": "SCRAM-SHA-256",
            },
            "SCRAM-SHA-256",
            {"sasl.scram.tokenauth": True},
        ),
        (
            {
                **jaas(
                    "OAuthBearerLoginModule",
                    f"clientId=me clientSecret={PLANTED} scope='a b' extension_lkc='lkc-1'",
                ),
                f"{OAUTH}.token.endpoint.url": "https://x/token",
                "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.secured."
                "OAuthBearerLoginCallbackHandler",
            },
            "OAUTHBEARER",
            {
                f"{OAUTH}.client.credentials.client.id": "me",
                f"{OAUTH}.client.credentials.client.secret": Secret(PLANTED),
                f"{OAUTH}.scope": "a b",
                f"{OAUTH}.extensions": {"lkc": "lkc-1"},
                f"{OAUTH}.method": "oidc",
            },
        ),
        (
            jaas("OAuthBearerLoginModule", "unsecuredLoginStringClaim_sub=alice"),
            "OAUTHBEARER",
            {f"{OAUTH}.method": "unsecured", f"{OAUTH}.unsecured": {"StringClaim_sub": "alice"}},
        ),
        (
            {
                **jaas("OAuthBearerLoginModule", "awsProfileName=dev"),
                "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam."
                "IAMOAuthBearerLoginCallbackHandler",
            },
            "OAUTHBEARER",
            {f"{OAUTH}.method": "aws_msk_iam", "sasl.aws.msk.iam.profile": "dev"},
        ),
        (
            {
                **jaas(
                    "com.sun.security.auth.module.Krb5LoginModule",
                    "useKeyTab=true keyTab='/etc/k' principal='me@REALM' serviceName=broker",
                ),
                "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
            },
            "GSSAPI",
            {
                "sasl.kerberos.keytab": "/etc/k",
                "sasl.kerberos.principal": "me@REALM",
                "sasl.kerberos.service.name": "broker",
            },
        ),
        (
            jaas(
                "software.amazon.msk.auth.iam.IAMLoginModule",
                f"awsRoleArn='arn:x' awsRoleSecretAccessKey={PLANTED}",
            ),
            "AWS_MSK_IAM",
            {
                "sasl.aws.msk.iam.role.arn": "arn:x",
                "sasl.aws.msk.iam.role.secret.access.key": Secret(PLANTED),
            },
        ),
        (
            {
                **jaas(
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
                    f"clientId=me ssl.truststore.location='/etc/t.p12' "
                    f"ssl.truststore.type=PKCS12 ssl.truststore.password={PLANTED}",
                ),
                f"{OAUTH}.token.endpoint.url": "https://login/token",
            },
            "OAUTHBEARER",
            {
                "https.ca.location": "/etc/t.p12",
                "https.ca.password": Secret(PLANTED),
                "ssl.truststore.location": None,
            },
        ),
        (SASL, "GSSAPI", {"sasl.kerberos.service.name": "kafka"}),
        (
            {**SASL, "oauth_cb": len},
            "OAUTHBEARER",
            {f"{OAUTH}.token.provider": len, f"{OAUTH}.method": "default"},
        ),
        (
            {
                **SASL,
                "sasl.mechanisms": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                f"{OAUTH}.config": "principal=bob lifeSeconds=60 scope=a,b extension_x=y",
            },
            "OAUTHBEARER",
            {
                f"{OAUTH}.unsecured": {
                    "StringClaim_sub": "bob",
                    "PrincipalClaimName": "sub",
                    "ListClaim_scope": ",a,b",
                    "ScopeClaimName": "scope",
                    "LifetimeSeconds": "60",
                },
                f"{OAUTH}.extensions": {"x": "y"},
            },
        ),
    ],
)
def test_jaas_modules_set_the_sasl_mechanism_and_its_options(
    given: dict[str, Any], mechanism: str, found: dict[str, Any]
) -> None:
    settled = config(given)
    assert settled["sasl.mechanism"] == mechanism
    assert {name: settled[name] for name in found} == found
    assert PLANTED not in repr(settled)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL"),
    ({**SCRAM, "sasl.username": "u"}, "SCRAM-SHA-512 needs sasl.password"),
    ({**SCRAM, "sasl.password": PLANTED}, "SCRAM-SHA-512 needs sasl.username"),
    ({**SASL, **LOGIN}, "sasl.mechanism is missing: set PLAIN, SCRAM"),
    ({**SASL, "sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism must be"),
    ({**SCRAM, "sasl.mechanism": ["PLAIN", "GSSAPI"]}, "one mechanism, not 2"),
    (
        jaas(f"{MODULES}.scram.ScramLoginModule", f"username=u password={PLANTED}"),
        "with ScramLoginModule set SCRAM-SHA-256 or",
    ),
    (
        {**jaas("PlainLoginModule", f"username=u password={PLANTED}"), **SCRAM},
        "has PlainLoginModule, but sasl.mechanism=SCRAM-SHA-512 needs ScramLogin",
    ),
    (
        {**jaas("PlainLoginModule", f"username=u password={PLANTED}"), "sasl.username": "v"},
        "sasl.username and sasl.jaas.config have different values",
    ),
    (jaas("com.example.VaultLoginModule", f"password={PLANTED}"), f"{OAUTH}.token.provider=<a"),
    (
        {**SASL, "sasl.mechanism": "OAUTHBEARER"},
        f"OAUTHBEARER needs a source of tokens: set {OAUTH}.token.provider",
    ),
    (
        {**SASL, "sasl.mechanism": "OAUTHBEARER", f"{OAUTH}.method": "oidc"},
        f"method=oidc needs {OAUTH}.token.endpoint.url",
    ),
    (
        {**SSL, "ssl.truststore.location": "/x", "ssl.truststore.certificates": PEM},
        "ssl.truststore.location and ssl.truststore.certificates can't be combined",
    ),
    ({**SSL, "ssl.keystore.key": KEY}, "ssl.keystore.key needs the matching cert"),
    (
        {**SSL, "ssl.keystore.certificate.chain": PEM},
        "ssl.keystore.certificate.chain needs the private key",
    ),
    (
        {
            **SSL,
            "ssl.keystore.location": "/x",
            "ssl.key.location": "/k",
            "ssl.certificate.location": "/c",
        },
        "ssl.keystore.location and ssl.key.location and ssl.certificate.location can't",
    ),
    ({**SSL, "ssl.keystore.key": PLANTED}, "ssl.keystore.key must contain PEM"),
    ({**SSL, "ssl.ca.pem": "/ca.pem"}, "must contain PEM.*ssl.truststore.loc"),
    (
        {**SSL, "ssl_certfile": "/c", "ssl.ca.pem": KEY.replace(PLANTED, "x") + PEM},
        "ssl.truststore.certificates contains a private key: set that with ssl.keystore.key",
    ),
    ({**SSL, "ssl.keystore.type": "JCEKS"}, "must be one of JKS, PKCS12"),
    ({**SSL, "ssl.protocol": "SSLv3"}, "ssl.protocol must be one of TLS"),
    ({**SSL, "ssl.context": 1}, "must be an ssl.SSLContext, not int"),
    ({**SSL, "sasl.password": 1}, "sasl.password must be a string, not int"),
    ({**SSL, "ssl_cadata": b"\x30\x82"}, "ssl.cadata must be PEM text; DER certificates"),
    (
        {"sasl.username": "a", "sasl.plain.username": "b"},
        "sasl.username is set twice, also as sasl.plain.username",
    ),
    (
        {f"{OAUTH}.token.provider": "json:loads"},
        "can't be a string, because configuration never names code",
    ),
    ({f"{OAUTH}.token.provider": b"json:loads"}, "token.endpoint.url with"),
    ({f"{OAUTH}.token.provider": f"eyJ9.{PLANTED}.sig"}, "can't be a string"),
    ({"oauth_cb": f"{PLANTED}:x"}, "In Python, pass the function itself"),
    ({"sasl_oauth_token_provider": "os:system"}, "ODRADEK_ALLOWED_FILES"),
    ({f"{OAUTH}.extensions": "a"}, "must be key=value"),
    ({"ssl.truststore.lokation": "x"}, "did you mean ssl.truststore.location"),
    ({"pasword": PLANTED}, "unknown option 'pasword'"),
    ({"sasl_plain_passwort": PLANTED}, "unknown option"),
    ({"client.secrets": PLANTED}, "unknown option"),
    ({"sasl.user.passwd": PLANTED}, "unknown option"),
    ({"api.token": PLANTED}, "unknown option"),
]


@pytest.mark.parametrize(("given", "problem"), WRONG)
def test_invalid_security_settings_are_rejected(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        config(given)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert PLANTED not in str(caught.value)
    for frame in shown.stack:
        if "/src/odradek/" in frame.filename:
            assert PLANTED not in str(frame.locals), frame


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_unsupported_options_of_other_clients_are_rejected(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=name):
        config({name: "x"})


@pytest.mark.parametrize(
    "name", ["ssl.engine.factory.class", "sasl.login.callback.handler.class", "sasl.login.class"]
)
def test_java_classes_are_rejected_with_a_replacement(name: str) -> None:
    with pytest.raises(
        UnsupportedFeatureError, match=f"{name}: Python can't run the Java class Mine; use "
    ):
        config({name: "com.example.Mine"})


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (
            {"ssl.truststore.location": "/x"},
            "no effect with security.protocol=PLAINTEXT; did you mean SSL",
        ),
        (
            {**SSL, "sasl.username": "u"},
            "sasl.username: no effect with security.protocol=SSL; did you mean SASL_SSL",
        ),
        ({**PLAINTEXT, "sasl.mechanism": "PLAIN"}, "can read the credentials; use SASL_SSL"),
        (
            {**SCRAM, **PLAINTEXT, "bootstrap.servers": "localhost:1,broker:9092"},
            "SCRAM-SHA-512 to broker:9092: an attacker on the network can try passwords",
        ),
        (
            {**SSL, "enable.ssl.certificate.verification": "false"},
            "any server can impersonate the brokers of h:9092",
        ),
        ({**SSL, SAME_HOST: ""}, "host names of brokers aren't verified"),
        (
            {"ssl.provider": "SunJSSE"},
            "ssl.provider has no effect: it selects a component of the JVM",
        ),
        (
            {**jaas("PlainLoginModule", f"usrname=u password={PLANTED}"), "sasl.username": "u"},
            "PlainLoginModule doesn't know 'usrname' (did you mean username?), which has no effect",
        ),
        (
            jaas("IAMLoginModule", f"Pa55_{PLANTED[:5]}=required"),
            "IAMLoginModule doesn't know one of its options, which has no effect",
        ),
    ],
)
def test_insecure_or_ineffective_settings_cause_a_warning(
    given: dict[str, Any], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    config(given)
    (record,) = caplog.records
    assert warning in record.getMessage()
    assert PLANTED not in record.getMessage()


def test_secrets_in_urls_and_arguments_of_functions_are_hidden() -> None:
    found = config(
        {
            **SASL,
            "oauth_cb": len,
            f"{OAUTH}.config": f"secret={PLANTED}",
            f"{OAUTH}.token.endpoint.url": f"https://me:{PLANTED}@x:1/token?key={PLANTED}",
        }
    )
    assert PLANTED not in repr(found)
    assert "'https://x:1/token'" in repr(found)
    assert found[f"{OAUTH}.config"].reveal() == f"secret={PLANTED}"


def test_an_ssl_context_cannot_be_combined_with_other_options() -> None:
    class Context:
        def wrap_socket(self) -> None: ...

    found = Context()
    given = {**SSL, "ssl_context": found}
    assert config(given)["ssl.context"] is found
    with pytest.raises(ConfigurationError, match="can't be combined with ssl.truststore.location"):
        config({**given, "ssl_cafile": "/x"})


def test_each_secret_option_hides_its_value() -> None:
    assert OPTIONS.keys() >= SECRETS
    assert IGNORED.keys() <= OPTIONS.keys()
    assert not ALIASES.keys() & OPTIONS.keys()
    for name in SECRETS:
        pem = name.endswith((".key", "key.pem")) and name.startswith(("ssl.", OAUTH))
        value = f"http://alice:{PLANTED}@proxy:1" if name == "proxy.url" else PLANTED
        found = OPTIONS[name].parse(name, KEY if pem else value)
        assert PLANTED not in repr(found)
        assert isinstance(found, Proxy if name == "proxy.url" else Secret)


def test_an_invalid_sasl_option_raises_a_kafka_error() -> None:
    with pytest.raises(KafkaError):
        config({"sasl.login.refresh.window.factor": "2"})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_plaintext_on_this_machine_causes_no_warning(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    config(
        {
            "bootstrap.servers": "localhost:1,127.0.0.2:1,[::1]:1",
            **PLAINTEXT,
            "sasl.mechanism": mechanism,
        }
    )
    assert caplog.records == []
