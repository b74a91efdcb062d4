"""The native Protobuf decoder against Protobuf's library: random messages, rows, broken bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.kernels import native
from tests.fuzz.protobuf import Protobufs, differ, drive
from tests.volume import examples

kernel = native("kernel_columns")


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_the_native_decoder_equals_the_protobuf_library(seed: int) -> None:
    """Compare values, types, the rows that can't be read, and the texts of their errors."""
    protobufs = Protobufs(seed)
    for _ in range(6):
        case = protobufs.case()
        drive(kernel, case)
        assert (why := differ(case)) is None, why
