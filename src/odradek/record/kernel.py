# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True
"""The native decoder; compiled by setup.py, never run as Python.

In: the records of one partition from a fetch answer. Out: what `reference.decode` gives.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.stdint import uint8_t
from cython.cimports.odradek.record.native import (
    odradek_crc32c,
    odradek_crc_by_table,
    odradek_crc_kind,
    odradek_crc_prepare,
    odradek_digest,
)

odradek_crc_prepare()

SOURCES: str = odradek_digest.decode().partition(":")[2]
CRC_BY_INSTRUCTION: bool = odradek_crc_kind == 1


def crc32c(data: cython.const[uint8_t][::1]) -> int:
    """Compute the checksum of any contiguous buffer."""
    if data.shape[0] == 0:
        return 0
    return odradek_crc32c(cython.address(data[0]), data.shape[0])


def crc32c_by_table(data: cython.const[uint8_t][::1]) -> int:
    """Compute it as on a processor without the instruction."""
    if data.shape[0] == 0:
        return 0
    return odradek_crc_by_table(cython.address(data[0]), data.shape[0])
