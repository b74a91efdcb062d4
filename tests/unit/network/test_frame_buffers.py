"""Test that receive buffers are reused, but only after their last view is deleted."""

from __future__ import annotations

import mmap

import pytest

from odradek.network import frame_buffers
from odradek.network.frame import FrameReader
from odradek.network.frame_buffers import STEP, FrameBuffers, size_class

MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 65536, 65537, MIB, MIB + 1, 9 * MIB, 100 * MIB + 17])
def test_buffer_sizes_are_rounded_up_by_a_quarter_at_most(size: int) -> None:
    rounded = size_class(size)
    assert size <= rounded <= max(4096, size * 1.25)
    assert size_class(rounded) == rounded


def test_a_buffer_is_reused_after_its_last_view_is_deleted() -> None:
    buffers = FrameBuffers(16 * MIB)
    first = memoryview(buffers.take(2 * MIB))
    part = first[100:200]
    whole = first.obj
    del first
    second = memoryview(buffers.take(2 * MIB))
    assert second.obj is not whole
    del part
    assert memoryview(buffers.take(2 * MIB)).obj is whole
    assert (buffers.made, buffers.reused, buffers.free) == (2, 1, 1)


def test_the_smallest_free_buffer_that_is_large_enough_is_reused() -> None:
    buffers = FrameBuffers(16 * MIB)
    views = [memoryview(buffers.take(n * MIB)) for n in (4, 1, 2)]
    sizes = [len(view) for view in views]
    views.clear()
    assert sizes == [4 * MIB, MIB, 2 * MIB]
    assert len(buffers.take(MIB + 5)) == 2 * MIB
    assert buffers.made == 3


def test_the_pool_remains_within_its_limit_and_drops_free_buffers_first() -> None:
    buffers = FrameBuffers(4 * MIB)
    used = memoryview(buffers.take(2 * MIB))
    buffers.take(MIB)
    large = memoryview(buffers.take(2 * MIB))
    assert buffers.kept == 4 * MIB
    assert buffers.free == 0
    assert (
        len(buffers.take(8 * MIB)) == 8 * MIB
    )  # larger than the limit, so the pool doesn't keep it
    assert buffers.kept == 4 * MIB
    more = memoryview(buffers.take(MIB))  # the oldest buffer in use leaves the pool
    assert buffers.kept == 3 * MIB
    used[0] = large[0] = more[0] = 1


def test_by_default_no_buffer_is_kept_for_reuse() -> None:
    buffers = FrameBuffers()
    buffers.take(MIB)
    assert (buffers.kept, buffers.free) == (0, 0)


def test_if_mmap_fails_a_bytearray_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refused)
    assert type(FrameBuffers().take(2 * MIB)) is bytearray


def test_a_second_large_frame_reuses_the_first_frames_full_sized_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_buffers, "MAPS", False)
    buffers = FrameBuffers(256 * MIB)
    reader = FrameReader(128 * MIB, buffers)
    size = 40 * MIB
    for made in (3, 3):  # 16, 32, 40 MiB; the second frame reuses 40 MiB
        reader.get_buffer()[:4] = size.to_bytes(4, "big")
        frames = reader.buffer_updated(4)
        while not frames:
            frames = reader.buffer_updated(len(reader.get_buffer()))
        assert len(frames[0]) == size
        assert buffers.made == made
        frames.clear()
    kept = memoryview(buffers.take(size))
    assert len(memoryview(buffers.take(size))) > STEP  # the first buffer is large enough
    assert len(kept) == size


def test_the_buffer_of_a_frame_that_is_still_arriving_is_not_reused() -> None:
    buffers = FrameBuffers(64 * MIB)
    one, two = FrameReader(8 * MIB, buffers), FrameReader(8 * MIB, buffers)
    for reader in (one, two):
        reader.get_buffer()[:4] = MIB.to_bytes(4, "big")
        assert reader.buffer_updated(4) == []
    one.get_buffer()[:] = b"1" * MIB
    two.get_buffer()[:] = b"2" * MIB
    assert one.buffer_updated(MIB)[0] == b"1" * MIB
    assert two.buffer_updated(MIB)[0] == b"2" * MIB
    assert buffers.made == 2
