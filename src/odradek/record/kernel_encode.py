# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True
"""The native encoder; compiled by setup.py, never run as Python."""

from __future__ import annotations

import cython
from cython.cimports.odradek.record.native import odradek_crc_prepare, odradek_digest

odradek_crc_prepare()

SOURCES: str = odradek_digest.decode().partition(":")[2]
COMPILED: bool = cython.compiled
