"""Read and write Kafka's zigzag varints, one at a time, for plain decoder and encoders.

In: bytes, or a number. Out: a number and its end in the bytes, or bytes.
"""

from __future__ import annotations

from odradek.record.batch import BadBatchError


def read_varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Read a number of up to 32 or 64 bits; return the number and its end.

    Raises `BadBatchError` for a longer number, and `IndexError` if `data` ends too early.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift >= bits:
            break
    if byte >= 0x80 or value >> bits:
        raise BadBatchError(f"a number has more than {bits} bits")
    return (value >> 1) ^ -(value & 1), at


def write_varint(value: int) -> bytes:
    """Encode a signed number that fits into 64 bits."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
