"""Read the values of security options; errors don't contain secrets.

In: an option's name and the user's value. Out: the value as the clients use it. Must not: read
files, or import `ssl`: `runtime.tls` checks what OpenSSL accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fsdecode
from typing import Any

from odradek.common.arguments import is_bool
from odradek.common.errors import ConfigurationError
from odradek.common.options.values import Parse, reads, text
from odradek.common.secret import NotText, Secret, hidden

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


@reads("secret text")
def secret(name: str, value: Any) -> Secret:
    """Read a secret, which no output shows; leading and trailing spaces belong to it."""
    value = hidden(value)
    if isinstance(value, Secret):
        return value
    kind = value.kind if isinstance(value, NotText) else "None"
    raise ConfigurationError(f"{name} must be a string, not {kind}")


@reads("path")
def path(name: str, value: Any) -> str:
    """Read the path of a file or directory, given as a str or `Path`."""
    if isinstance(value, PathLike):
        value = fsdecode(value)
    return text(name, value)


def upper(*allowed: str, hint: str = "") -> Parse[str]:
    """Read one of the allowed words, in upper or lower case; return it in upper case."""

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
    """Read words, given as a list or separated by commas."""
    parts = value.split(",") if isinstance(value, str) else list(value or ())
    return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))


@reads("list", "names, separated by commas, or an OpenSSL cipher string")
def ciphers(name: str, value: Any) -> tuple[str, ...] | str:
    """Read cipher names separated by commas as in Java, or a cipher string of OpenSSL."""
    if isinstance(value, str) and any(mark in value for mark in ":!+@"):
        return value.strip()
    return names(name, value)


@reads("word", "https, none, or empty")
def endpoint_identification(name: str, value: Any) -> str:
    """Read `https`, or an empty text (in librdkafka `none`), which disables the host name check."""
    if value is None:  # None, e.g. from os.environ.get, must not disable the check
        return "https"
    found = str(value).strip().lower()
    if found not in ("https", "", "none"):
        raise ConfigurationError(
            f"{name} must be https, or empty to disable the check, not {value!r}"
        )
    return "" if found == "none" else found


@reads("PEM text")
def pem(name: str, value: Any) -> str:
    r"""Read PEM text; a literal `\n` counts as a line end, as properties files may contain it."""
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
    """Read a private key as PEM text."""
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
    """Read JKS, PKCS12 or PEM; the error for other store types that Java has names the type."""
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
    """Read a mapping, or a text such as `a=b,c=d`."""
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
    """Return a URL without parts that may be secret: user, password, query, fragment."""
    from urllib.parse import urlsplit, urlunsplit  # only here: most clients start without it

    try:
        parts = urlsplit(url)
    except ValueError:
        return "[hidden]"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def number(minimum: float, maximum: float) -> Parse[float]:
    """Return a reader of decimal numbers within bounds."""

    @reads("number", f"{minimum} to {maximum}")
    def parse(name: str, value: Any) -> float:
        try:
            if is_bool(value):
                raise ValueError
            found = float(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{name} must be a number, not {value!r}") from None
        if not minimum <= found <= maximum:
            raise ConfigurationError(f"{name} must be {minimum} to {maximum}, not {value!r}")
        return found

    return parse


@reads("function", "a function, or an object with token()")
def provider(name: str, value: Any) -> Any:
    """Read a function that returns a token, or an object with `token()`, as in kafka-python.

    Never a str (R-IN-2): if a str could name a module, anyone who can write a settings file or a
    Spark option could run its code.
    """
    if isinstance(value, str | Secret | NotText):  # don't show it, as it may be a token
        raise ConfigurationError(
            f"{name} can't be a string, because configuration never names code to run. In Python, "
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
    """Read an `ssl.SSLContext` that the user created."""
    if not callable(getattr(value, "wrap_socket", None)):
        raise ConfigurationError(f"{name} must be an ssl.SSLContext, not {type(value).__name__}")
    return value
