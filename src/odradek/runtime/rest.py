"""Call equivalent servers with JSON over HTTP: each call ends at its deadline.

In: URLs, a method, a path, a body. Out: a status and the JSON of its response, or `NoAnswerError`
with each server's error. The server of the last response is asked first. A round of all servers
costs no wait; rounds are spaced by the project's backoff (KIP-580). Must not: follow a redirect or
the environment's proxies (`http_until`), or put a credential into a text.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from odradek.common.backoff import ExponentialBackoff
from odradek.common.echoes import without_echo
from odradek.common.errors import KafkaError
from odradek.common.outage import number
from odradek.common.patience import shared
from odradek.common.secret import Secret
from odradek.runtime.credentials.allowed_sources import shown
from odradek.runtime.credentials.http_until import Until, opener
from odradek.runtime.resolver import Resolver
from odradek.runtime.system_clock import SystemClock

LONGEST_ANSWER = 32 << 20
"""Bytes of an answer."""
SAID = 300
"""Characters of a server's words that an error repeats."""
RETRIED = frozenset((408, 425, 429))
"""With all of 5xx: states that may pass by themselves, or that another server isn't in."""


class NoAnswerError(KafkaError):
    """No server returned a usable response; the text has the result of each server."""

    lasting = False
    """Whether another attempt won't help: a certificate isn't trusted."""


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """A server's response."""

    place: str
    """The server's URL, without secret parts."""
    status: int
    body: Any
    """The parsed JSON; None if it isn't JSON."""

    @property
    def passes(self) -> bool:
        """Whether the same question may get another answer later."""
        return self.status in RETRIED or self.status >= 500


@dataclass(frozen=True, slots=True)
class RestLimits:
    """Timeouts in seconds."""

    call: float
    """For all attempts and the waits between them."""
    attempt: float
    """For one request to one server."""


class RestServers:
    """Servers with the same content. `call` may be called from any thread."""

    def __init__(
        self,
        urls: Sequence[str],
        headers: Callable[[], Mapping[str, Secret]],
        tls: Callable[[], ssl.SSLContext],
        limits: RestLimits,
        backoff: ExponentialBackoff,
        content_type: str,
    ) -> None:
        """Set `headers`, which returns the authentication headers of each request."""
        self._urls = list(urls)
        self._headers = headers
        self._tls = tls
        self._no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for http: it costs no files
        self._limits = limits
        self._backoff = backoff
        self._type = content_type
        self._rng = random.Random()
        self._clock = SystemClock()
        self._resolver = Resolver()

    def call(self, method: str, path: str, body: object = None) -> RestAnswer:
        """Retry until there is a final response, or no time left.

        A response with a temporary status (5xx, 429) is returned unchanged when the time is over.
        Calls within `one_patience` share the time of the first.
        """
        data = None if body is None else json.dumps(body).encode()
        deadline, failures = shared(self._clock.now() + self._limits.call), 0
        last: RestAnswer | None = None
        words: list[str] = []
        while True:
            said: list[str] = []
            lasting = True
            for url in list(self._urls):
                try:
                    found = self._asked(url, method, path, data, deadline)
                except NoAnswerError as error:
                    said.append(str(error))
                    lasting = lasting and error.lasting
                    continue
                if not found.passes:
                    self._prefer(url)
                    return found
                last, lasting = found, False
                said.append(f"{found.place} sent HTTP status {found.status}")
            over = self._clock.now() >= deadline
            if not (over and words):  # else the time of this round was cut
                words = said
            wait = self._backoff.delay(failures, self._rng)
            failures += 1
            if lasting or self._clock.now() + wait >= deadline:
                if last is not None:
                    return last
                raise NoAnswerError("; ".join(words) + f" ({number(failures, 'attempt')})")
            self._clock.pause(wait)

    def _prefer(self, url: str) -> None:
        if self._urls[0] != url:
            self._urls = [url, *(one for one in self._urls if one != url)]

    def _asked(
        self, url: str, method: str, path: str, data: bytes | None, deadline: float
    ) -> RestAnswer:
        """One server's answer, whatever its status."""
        secrets = self._headers()
        request = urllib.request.Request(  # noqa: S310 - `opener` knows http and https only
            url + path, data, method=method
        )
        request.add_header("Accept", f"{self._type}, application/json")
        request.add_header("Content-Type", self._type)
        request.add_header("User-Agent", "odradek")
        for name, value in secrets.items():
            request.add_unredirected_header(name, value.reveal())
        until = Until(self._clock, min(deadline, self._clock.now() + self._limits.attempt))
        place = shown(url)
        try:
            context = self._tls() if url.startswith("https") else self._no_tls
            try:
                with opener(context, until, self._resolver).open(request) as answer:
                    return RestAnswer(place, answer.status, _json(answer, place, ()))
            except urllib.error.HTTPError as error:
                with error:
                    return RestAnswer(place, error.code, _json(error, place, secrets.values()))
        except (OSError, http.client.HTTPException) as error:
            failure = _failure(error, place)
        # Outside of `except`: the frames of urllib have the header in their variables.
        raise failure


def _json(answer: Any, place: str, secrets: Any) -> Any:
    """Return the body, up to a limit; a credential that an error repeats is removed."""
    pieces, size = [], 0
    while piece := answer.read1(65536):
        pieces.append(piece)
        size += len(piece)
        if size > LONGEST_ANSWER:
            raise NoAnswerError(f"{place} sent more than {LONGEST_ANSWER} bytes")
    try:
        found = json.loads(b"".join(pieces).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return found
    # Compare parsed JSON: any character may be escaped in it, and servers differ in which they
    # escape.
    forms = [form for secret in secrets for form in _forms(secret)]
    return {name: _without(value, forms) for name, value in found.items()}


def _without(value: Any, secrets: list[Secret]) -> Any:
    """Return a text without secrets; containers of texts aren't repeated."""
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = without_echo(value, secret)
    return value


def _forms(header: Secret) -> list[Secret]:
    """Return the parts of a header that a server may repeat: its credential, and the password."""
    credential = Secret(header.reveal().rpartition(" ")[2])
    found = [credential]
    with suppress(ValueError):
        found.append(Secret(b64decode(credential.reveal()).decode().partition(":")[2]))
    return found


def _failure(error: Exception, place: str) -> NoAnswerError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, http.client.HTTPException):  # it contains the server's text
        return NoAnswerError(f"{place} didn't send a valid HTTP response ({type(reason).__name__})")
    if isinstance(reason, ssl.SSLError):
        words = getattr(reason, "verify_message", "") or reason.reason or str(reason)
        failed = NoAnswerError(f"{place}: TLS failed: {words}")
        failed.lasting = True
        return failed
    if isinstance(reason, TimeoutError):
        return NoAnswerError(f"{place} didn't respond in time")
    return NoAnswerError(f"{place} can't be reached: {(str(reason) or 'unknown reason')[:SAID]}")
