"""How the values of security options are read; where one is refused, a secret isn't shown.

In: an option's name and what a user gave. Out: the value as the clients use it. Must not: read
files, or import `ssl`: what a value means to OpenSSL is `runtime.tls_context`'s part.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fsdecode
from typing import Any

from odradek.common.errors import ConfigurationError
from odradek.common.options.values import Parse, reads, text
from odradek.common.secret import NotText, Secret, hidden

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


@reads("secret text")
def secret(name: str, value: Any) -> Secret:
    """A text that is kept from every output; spaces count, as in a password."""
    value = hidden(value)
    if isinstance(value, Secret):
        return value
    kind = value.kind if isinstance(value, NotText) else "None"
    raise ConfigurationError(f"{name} must be a text, not {kind}")


@reads("path")
def path(name: str, value: Any) -> str:
    """The name of a file or folder, as a text or as a `Path`."""
    if isinstance(value, PathLike):
        value = fsdecode(value)
    return text(name, value)


def upper(*allowed: str, hint: str = "") -> Parse[str]:
    """One of some words in capitals; any case is taken."""

    @reads("word", ", ".join(allowed))
    def parse(name: str, value: Any) -> str:
        found = str(value).strip().upper()
        if found not in allowed:
            raise ConfigurationError(
                f"{name} must be one of {', '.join(allowed)}, not {value!r}{hint}"
            )
        return found

    return parse


@reads("list", "words, separated by commas, or a list")
def names(name: str, value: Any) -> tuple[str, ...]:
    """Words, as a list or with commas."""
    parts = value.split(",") if isinstance(value, str) else list(value or ())
    return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))


@reads("list", "names, separated by commas, or an OpenSSL cipher string")
def ciphers(name: str, value: Any) -> tuple[str, ...] | str:
    """Names with commas as in Java, or a text in OpenSSL's own language, as librdkafka takes it."""
    if isinstance(value, str) and any(mark in value for mark in ":!+@"):
        return value.strip()
    return names(name, value)


@reads("word", "https, none, or empty")
def endpoint_identification(name: str, value: Any) -> str:
    """`https`, or an empty text (librdkafka: none) for "any host name will do"."""
    if value is None:  # a key without a value, as from os.environ.get: no wish to check less
        return "https"
    found = str(value).strip().lower()
    if found not in ("https", "", "none"):
        raise ConfigurationError(
            f"{name} must be https, or empty to disable the check, not {value!r}"
        )
    return "" if found == "none" else found


@reads("PEM text")
def pem(name: str, value: Any) -> str:
    r"""PEM text; a written `\n` counts as a line's end, as properties files end up with those."""
    found = text(name, value.decode() if isinstance(value, bytes) else value)
    found = found.replace("\\r", "").replace("\\n", "\n")
    if "-----BEGIN " not in found:
        raise ConfigurationError(
            f"{name} must contain PEM text (-----BEGIN …); set the name of a file with "
            f"{INSTEAD_OF_PEM.get(name, 'the option that ends in .location')}"
        )
    if "PRIVATE KEY-----" in found:
        raise ConfigurationError(f"{name} contains a private key: set that with ssl.keystore.key")
    return found


INSTEAD_OF_PEM = {
    "ssl.truststore.certificates": "ssl.truststore.location",
    "ssl.keystore.certificate.chain": "ssl.keystore.location",
    "https.ca.pem": "https.ca.location",
}


@reads("secret PEM text")
def secret_pem(name: str, value: Any) -> Secret:
    """A private key as PEM."""
    hidden = secret(name, value)
    tidy = Secret(hidden.reveal().strip().replace("\\r", "").replace("\\n", "\n"))
    if "-----BEGIN " not in tidy.reveal():
        raise ConfigurationError(
            f"{name} must contain PEM text (-----BEGIN …); set the name of a file with "
            "ssl.keystore.location or ssl.key.location"
        )
    return tidy


@reads("word", ", ".join(STORE_TYPES))
def store_type(name: str, value: Any) -> str:
    """JKS, PKCS12 or PEM; what Java knows besides is refused by name."""
    found = str(value).strip().upper()
    found = {"P12": "PKCS12", "PFX": "PKCS12", "PKCS#12": "PKCS12"}.get(found, found)
    if found not in STORE_TYPES:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(STORE_TYPES)}, not {value!r}. Convert other stores "
            "with: keytool -importkeystore … -deststoretype PKCS12"
        )
    return found


@reads("pairs", "key=value, separated by commas, or a dict")
def pairs(name: str, value: Any) -> Mapping[str, str]:
    """A mapping, or `a=b,c=d`."""
    if isinstance(value, Mapping):
        return {str(key): str(one) for key, one in value.items()}
    found = {}
    for part in names(name, value):
        key, equals, one = part.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{name} must be key=value pairs, separated by commas")
        found[key.strip()] = one.strip()
    return found


def shown_url(url: str) -> str:
    """A URL without what may be secret in it: user, password, query, fragment."""
    from urllib.parse import urlsplit, urlunsplit  # only here: most clients start without it

    try:
        parts = urlsplit(url)
    except ValueError:
        return "[hidden]"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def number(minimum: float, maximum: float) -> Parse[float]:
    """A number with a fraction."""

    @reads("number", f"{minimum} to {maximum}")
    def parse(name: str, value: Any) -> float:
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{name} must be a number, not {value!r}") from None
        if not minimum <= found <= maximum:
            raise ConfigurationError(f"{name} must be {minimum} to {maximum}, not {value!r}")
        return found

    return parse


@reads("function", "a function, or an object with token()")
def provider(name: str, value: Any) -> Any:
    """A function that gives a token, or an object with `token()`, as kafka-python's providers.

    Never a text (R-IN-2): one that named a module would let whoever writes a file of settings, or
    an option of Spark's, run what is in it.
    """
    if isinstance(value, str | Secret | NotText):  # not shown: it may be a token
        raise ConfigurationError(
            f"{name} can't be a text, because configuration never names code to run. In Python, "
            "pass the function itself. In a file or in Spark options, use "
            "sasl.oauthbearer.token.endpoint.url with sasl.oauthbearer.client.credentials.* or "
            "sasl.oauthbearer.assertion.*, a token file that another program renews (file:///…, "
            "allowed by ODRADEK_ALLOWED_FILES), or sasl.oauthbearer.method=aws_msk_iam"
        )
    if callable(value) or callable(getattr(value, "token", None)):
        return value
    raise ConfigurationError(
        f"{name} must be a function that returns (token, expiry in seconds since 1970), or an "
        f"object with token(), not {type(value).__name__}"
    )


@reads("object", "an ssl.SSLContext")
def tls_context(name: str, value: Any) -> Any:
    """An `ssl.SSLContext` of the user's own."""
    if not callable(getattr(value, "wrap_socket", None)):
        raise ConfigurationError(f"{name} must be an ssl.SSLContext, not {type(value).__name__}")
    return value
