"""A registry of a few lines, for what no real one can be made to do: fail, lie, ask for passwords.

It keeps schemas in lists, gives GUIDs, and notes each question with its headers.
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from odradek.runtime import rest_client
from odradek.serialization.registry import client as registry_client

Answer = tuple[int, Any]


class RegistryServer(ThreadingHTTPServer):
    """`wrong` says what is answered instead, once for each of its items."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.scheme = "http" if tls is None else "https"
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.wrong: list[Answer] = []
        self.rule: Callable[[dict[str, str]], Answer | None] = lambda _: None
        self.more: dict[str, str] = {}
        """Headers of all answers."""
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.stalls = False
        """The second half of an answer never comes."""
        self.serialized: str | None = None
        """What is given for a schema where `format=serialized` is asked for; None: the schema."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is no news."""

    def answer(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        self.headers.append(headers)
        if self.wrong:
            return self.wrong.pop(0)
        refused = self.rule(headers)
        return self.answered(method, path, body) if refused is None else refused

    def answered(self, method: str, path: str, body: Any) -> Answer:
        parts = path.partition("?")[0].strip("/").split("/")
        match method, parts:
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "POST", ["subjects", subject, "versions"]:
                if body not in self.schemas:
                    self.schemas.append(body)
                number = self.schemas.index(body) + 1
                if number not in self.subjects.setdefault(subject, []):
                    self.subjects[subject].append(number)
                return 200, {"id": number, "guid": self.guid(number)}
            case "POST", ["subjects", subject]:
                numbers = self.subjects.get(subject, [])
                if body in self.schemas and self.schemas.index(body) + 1 in numbers:
                    return 200, self._version(subject, self.schemas.index(body) + 1)
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                numbers = self.subjects.get(subject, [])
                if numbers and (version == "latest" or int(version) <= len(numbers)):
                    at = len(numbers) if version == "latest" else int(version)
                    return 200, self._version(subject, numbers[at - 1])
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                found = self.schemas[int(number) - 1]
                if path.endswith("?format=serialized") and self.serialized is not None:
                    return 200, {**found, "schema": self.serialized}
                return 200, found
            case "GET", ["schemas", "guids", guid]:
                for number, schema in enumerate(self.schemas, 1):
                    if self.guid(number) == guid:
                        return 200, schema
        return 404, {"error_code": 40401, "message": "not \x1b[31mthere"}

    @staticmethod
    def guid(number: int) -> str:
        return str(uuid5(NAMESPACE_URL, str(number)))

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        more = {"subject": subject, "version": version, "id": number, "guid": self.guid(number)}
        return {**self.schemas[number - 1], **more}


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, found = self.server.answer(self.command, self.path, body, headers)
        data = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/")
        for name, value in self.server.more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.server.stalls:
            self.wfile.write(data[: len(data) // 2])
            self.connection.recv(1)  # until the client leaves
        else:
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


class FaultProxy(RegistryServer):
    """Passes requests to a real registry, unless `wrong` or `rule` has an answer."""

    upstream = ""

    def answered(self, method: str, path: str, body: Any) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.upstream + path, data, method=method)  # noqa: S310
        asked.add_header("Content-Type", registry_client.CONTENT_TYPE)
        try:
            with urllib.request.urlopen(asked, timeout=30) as found:  # noqa: S310 - on loopback
                return found.status, found.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@contextmanager
def registry_server(
    tls: ssl.SSLContext | None = None, kind: type[RegistryServer] = RegistryServer
) -> Iterator[RegistryServer]:
    """Serve until the end of the block; clients don't pause before they confirm an answer."""
    with kind(tls) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_client, "CONFIRM_S", 0.0)
        patch.setattr(rest_client, "UNEXPECTED_RESPONSE_S", 0.0)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
