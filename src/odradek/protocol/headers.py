"""Encode and decode whole frames: length, header and message.

In: a message with its version and correlation id, or the bytes between two length prefixes. Out:
buffers for the socket, or the header's fields and the message. Must not: know connections;
`network.in_flight_requests` matches responses to requests.

A request has header version 2 in flexible versions, else 1 (Kafka 4.0 removed version 0). A
response has header version 1 in flexible versions, else 0. The response to ApiVersions always has
header version 0, because the client doesn't know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class with a function's name
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.common.errors import MalformedMessageError
from odradek.protocol.message import Message, Request, malformed
from odradek.protocol.primitives import (
    Buffer,
    Buffers,
    Output,
    WireError,
    as_bytes_view,
    read_nullable_string,
    skip_tags,
    write_nullable_string,
)
from odradek.protocol.registry import FLEXIBLE_FROM

if TYPE_CHECKING:
    from odradek.protocol.messages.api_versions import ApiVersionsResponse

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35

_REQUEST_HEAD = Struct(">hhi")
_FRAMED_HEAD = Struct(">ihhi")
_INT32 = Struct(">i")
_INT32_TWICE = Struct(">ii")
_INT16 = Struct(">h")

R = TypeVar("R", bound=Message)


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> Buffers:
    """Encode a request as a frame that begins with its length."""
    out = Output()
    out += _FRAMED_HEAD.pack(0, request.API_KEY, version, correlation_id)
    write_nullable_string(out, client_id)
    first = request.FLEXIBLE_FROM
    if first is not None and version >= first:
        out.append(0)
    request.write(out, version)
    if out.splices:
        return _framed(out)
    _INT32.pack_into(out, 0, len(out) - 4)
    return [bytes(out)]


def encode_response(message: Message, version: int, correlation_id: int) -> Buffers:
    """Encode a response as a frame that begins with its length (for simulated brokers)."""
    out = Output()
    out += _INT32_TWICE.pack(0, correlation_id)
    if message.is_flexible(version) and message.API_KEY != API_VERSIONS:
        out.append(0)
    message.write(out, version)
    return _framed(out)


def _framed(out: Output) -> Buffers:
    """Write the length into the four bytes reserved at the start, and return the buffers."""
    size = len(out) - 4
    for _, records in out.splices:
        size += len(records)
    _INT32.pack_into(out, 0, size)
    return out.buffers()


def decode_request_header(buffer: Buffer) -> tuple[int, int, int, str | None, int]:
    """Decode a request's header: API key, version, correlation id, client id, start of the body.

    `buffer` is the frame without its length.
    """
    view = as_bytes_view(buffer)
    pos = 0
    try:
        api_key, version, correlation_id = _REQUEST_HEAD.unpack_from(view, pos)
        pos += 8
        client_id, pos = read_nullable_string(view, pos)
        if version >= FLEXIBLE_FROM.get(api_key, version + 1):
            pos = skip_tags(view, pos)
    except (WireError, StructError, IndexError, UnicodeDecodeError) as error:
        raise malformed("request header", len(view), error, pos) from error
    return api_key, version, correlation_id, client_id, pos


def peek_correlation_id(buffer: Buffer) -> int:
    """Return a response's correlation id, with which the caller finds the request."""
    try:
        found: int = _INT32.unpack_from(buffer)[0]
    except StructError as error:
        raise malformed("response header", as_bytes_view(buffer).nbytes, error) from error
    return found


def decode_answer(request: type[Request[R]], version: int, view: memoryview) -> R:
    """Decode the response to a request of this version (see `peek_correlation_id`).

    `view` is the frame without its length, as single bytes. `decode_api_versions_response` decodes
    ApiVersions.
    """
    if request.API_KEY == API_VERSIONS:
        return cast("R", decode_api_versions_response(view, version)[1])
    pos = 4
    response: type[R] = request.RESPONSE  # type: ignore[assignment]  # as `Request[R]` says
    first = response.FLEXIBLE_FROM
    if first is not None and version >= first:
        try:
            pos = skip_tags(view, pos) if view[pos] else pos + 1
        except (WireError, IndexError) as error:
            what = f"header of {response.__name__} v{version}"
            raise malformed(what, len(view), error, pos) from error
    return response.read(view, version, pos)


def decode_api_versions_response(buffer: Buffer, version: int) -> tuple[int, ApiVersionsResponse]:
    """Decode the response to ApiVersions, which has version 0 if the broker is too old (KIP-511).

    A broker that doesn't support `version` answers with error 35 in the layout of version 0, with
    the versions of ApiVersions that it supports (or none, before Kafka 2.4).
    """
    from odradek.protocol.messages.api_versions import ApiVersionsResponse

    view = as_bytes_view(buffer)
    correlation_id = peek_correlation_id(view)
    if version > 0 and len(view) >= 6 and _INT16.unpack_from(view, 4)[0] == UNSUPPORTED_VERSION:
        try:
            return correlation_id, ApiVersionsResponse.decode(view, 0, 4)
        except MalformedMessageError:
            pass  # error in the requested version's layout
    return correlation_id, ApiVersionsResponse.decode(view, version, 4)
