"""Map other clients' names of options: librdkafka's, aiokafka's and kafka-python's.

In: a name as it was set (with dots) and its value. Out: the option's name in Kafka, and the value
in Kafka's form. Only other names of an option are listed here; for settings with another meaning,
an error names the replacement. Must not: check values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from odradek.common.errors import ArgumentError, ConfigurationError, UnsupportedOptionError
from odradek.common.options.security import OAUTH, SECRETS
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import LONG_MAX, boolean, plain
from odradek.common.proxy import may_hold_password
from odradek.common.secret import hidden

logger = logging.getLogger("odradek.options")

ALIASES: dict[str, str] = {
    # librdkafka
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "oauth.cb": f"{OAUTH}.token.provider",
    f"{OAUTH}.client.id": f"{OAUTH}.client.credentials.client.id",
    f"{OAUTH}.client.secret": f"{OAUTH}.client.credentials.client.secret",
    "metadata.broker.list": "bootstrap.servers",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    # aiokafka and kafka-python
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauth.token.provider": f"{OAUTH}.token.provider",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.cadata": "ssl.truststore.certificates",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.crlfile": "ssl.crl.location",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "socks5.proxy": "proxy.url",
    "max.batch.size": "batch.size",
}

SUPERSEDED: dict[str, str] = {"metadata.max.age.ms": "topic.metadata.refresh.interval.ms"}
"""Settings of librdkafka that are ignored if the other setting, given as value, is set too."""
RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "none",
}
"""Values of `auto.offset.reset` in librdkafka, and what they are in Kafka."""
_OWN_CONTEXT = "configure this in an ssl.SSLContext and set it as ssl.context"
REFUSED: dict[str, str] = {
    "ssl.curves.list": _OWN_CONTEXT,
    "ssl.sigalgs.list": _OWN_CONTEXT,
    "ssl.providers": _OWN_CONTEXT,
    "ssl.engine.location": _OWN_CONTEXT,
    "ssl.engine.id": _OWN_CONTEXT,
    "ssl.certificate.verify.cb": _OWN_CONTEXT,
    "ssl.ca.certificate.stores": "set ssl.truststore.location",
    "ssl.key": "set ssl.key.location or ssl.keystore.key",
    "ssl.certificate": "set ssl.certificate.location or ssl.keystore.certificate.chain",
    "ssl.ca": "set ssl.truststore.location or ssl.truststore.certificates",
    "config.providers": "placeholders such as ${file:…} aren't resolved; set the values themselves",
    "sasl.kerberos.domain.name": "the host names of the brokers are used",
    f"{OAUTH}.metadata.authentication.type": f"set {OAUTH}.token.provider=<a function>",
    f"{OAUTH}.assertion.template.file": f"set {OAUTH}.assertion.claim.* instead",
    f"{OAUTH}.assertion.jwt.template.file": f"set {OAUTH}.assertion.claim.* instead",
}
"""Options of other clients that this release doesn't support, and what to do instead."""


def dotted(name: object) -> str:
    """Return a setting's name with dots; keyword arguments have underscores."""
    return str(name).replace("_", ".")


def canonical_option(name: str, value: Any) -> tuple[str, Any]:
    """Return an option's name in Kafka, and the value in Kafka's form."""
    if name in REFUSED:
        raise UnsupportedOptionError(f"{name} isn't supported in this release: {REFUSED[name]}")
    if name == "ssl.check.hostname":
        value = "https" if value is None or boolean(name, value) else ""
    elif name == "ssl.ca.location" and value == "probe":
        value = None  # in librdkafka: the system's store
    elif name == "topic.metadata.refresh.interval.ms" and str(value).strip() == "-1":
        value = LONG_MAX  # in librdkafka: never
    elif name == "auto.offset.reset" and (word := str(value).strip().lower()) in RESETS:
        if RESETS[word] != word:
            logger.info("%s=%s is librdkafka's word for %s", name, word, RESETS[word])
        value = RESETS[word]
    elif name == "ssl.cadata" and isinstance(value, bytes) and not value.lstrip().startswith(b"-"):
        raise ConfigurationError("ssl.cadata must be PEM text; DER certificates aren't supported")
    return ALIASES.get(name, name), value


def sealed(given: Any) -> dict[str, Any]:
    """Return the options with secrets wrapped, and with the values of enum members.

    Callers do this first, before a traceback could show the secrets. Raises `ArgumentError`, which
    doesn't show the argument, if it isn't a mapping.
    """
    if given is not None and not isinstance(given, Mapping):
        kind, given = type(given).__name__, None  # tracebacks show this frame, too
        cure = "options as keyword arguments, or the dict that read_properties(path) returns"
        raise ArgumentError(f"config must be a dict of options, not {kind}: pass {cure}")
    return {
        name: hidden(plain(value)) if _means_secret(dotted(name), value) else plain(value)
        for name, value in (given or {}).items()
    }


def _means_secret(name: str, value: Any) -> bool:
    """Return whether the value of an option is a secret, or may be one.

    The value of an unknown option isn't needed, and may be a password (`passwd`, `SASL.PASSWORD`).
    A text that is set as token function may be a token.
    """
    meaning = ALIASES.get(name, name)
    if meaning == f"{OAUTH}.token.provider":
        return isinstance(value, str | bytes)
    if meaning == "proxy.url":
        return may_hold_password(value)
    return meaning in SECRETS or meaning not in OPTIONS
