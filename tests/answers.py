"""Decode a whole response frame, including its correlation id, which clients read separately."""

from __future__ import annotations

from typing import TypeVar

from odradek.protocol.headers import decode_answer, peek_correlation_id
from odradek.protocol.message import Message, Request
from odradek.protocol.primitives import Buffer, as_bytes_view

R = TypeVar("R", bound=Message)


def decode_response(request: type[Request[R]], version: int, buffer: Buffer) -> tuple[int, R]:
    """Return the correlation id and the message of a frame without its length prefix."""
    view = as_bytes_view(buffer)
    return peek_correlation_id(view), decode_answer(request, version, view)
