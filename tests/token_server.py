"""Run a small OAuth server on loopback: client credentials, JWT bearer and JWKS.

Out: a token endpoint that issues RS256 JWTs, the keys that brokers check them with (`/jwks`), and
`faults`, a list of responses to send instead of the next ones.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT_ID, CLIENT_SECRET = "odradek-tests", "a+secret/with:signs"
Fault = tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decoded(text: str) -> Any:
    return json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _integer(number: int) -> str:
    return encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or refuse the certificate: tests cause both on purpose."""


class TokenServer:
    """OAuth server that runs as long as its `with` block."""

    issuer = "https://issuer.test"
    audience = "kafka"

    def __init__(self, tls: ssl.SSLContext | None = None, lifetime: int = 3600) -> None:
        self.lifetime = lifetime
        self.faults: list[Fault] = []
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.key = _key()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str = "/token", host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self._server.server_address[1]}{path}"

    def token(self, subject: str = CLIENT_ID, **claims: Any) -> str:
        """Sign a token."""
        now = int(time.time())
        body: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject,
            "scope": "kafka",
        }
        body |= {"iat": now, "exp": now + self.lifetime, **claims}
        parts = [{"alg": "RS256", "kid": "one", "typ": "JWT"}, body]
        text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        return f"{text}.{encoded(self.key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
        return {"keys": [{**key, "n": _integer(numbers.n), "e": _integer(numbers.e)}]}

    def answer(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """Return the response to a token request (RFC 6749)."""
        if form.get("grant_type", "").endswith(":jwt-bearer"):
            subject = decoded(form["assertion"].split(".")[1])["sub"]
        else:
            given = b64decode(authorization.removeprefix("Basic ") or b"").decode()
            if given != f"{CLIENT_ID}:{CLIENT_SECRET}":
                refusal = {"error": "invalid_client", "error_description": "Who are you?"}
                return 401, json.dumps(refusal).encode()
            subject = CLIENT_ID
        answer = {"access_token": self.token(subject), "token_type": "Bearer"}
        return 200, json.dumps({**answer, "expires_in": self.lifetime}).encode()

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.say(200, json.dumps(server.jwks()).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                form = dict(parse_qsl(body.decode()))
                server.forms.append(form)
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                if server.faults:
                    fault = server.faults.pop(0)
                    if callable(fault):
                        return fault(self)
                    return self.say(*fault)
                self.say(*server.answer(form, self.headers.get("Authorization", "")))
                return None

            def say(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        return Handler
