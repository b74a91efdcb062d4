"""The native Avro decoder against fastavro: random schemas, reader schemas, rows, broken bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.avro import Avros, differ
from tests.fuzz.kernels import native
from tests.volume import examples

native("kernel_columns")


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_the_native_decoder_equals_fastavro(seed: int) -> None:
    """Compare values, types, the rows that can't be read, and the texts of their errors."""
    avros = Avros(seed)
    for _ in range(6):
        assert (why := differ(avros.case())) is None, why
