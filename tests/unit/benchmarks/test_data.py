"""The pool of sample records that all benchmark drivers send."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from benchmarks import data


@pytest.mark.parametrize("size", [100, 1024])
def test_records_have_the_given_size_compress_like_text_and_are_reproducible(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "POOL_BYTES", 200_000)
    count = data.write_pool(tmp_path / "one", size)
    data.write_pool(tmp_path / "two", size)
    text = (tmp_path / "one").read_bytes()
    assert text == (tmp_path / "two").read_bytes()
    at = found = 0
    while at < len(text):
        key, value = struct.unpack_from(">II", text, at)
        assert (key, value) == (16, size)
        record = text[at + 24 : at + 24 + size]
        assert record.startswith(b'{"id":')
        assert record.endswith(b'"}')
        at += 8 + key + value
        found += 1
    assert found == count
    assert 2.0 < len(text) / len(zlib.compress(text)) < 6.0
