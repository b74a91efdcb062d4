"""Test the native encoder: its memory, and use by several threads.

Its equality with the Python encoder is tested in test_encoder, test_builder and tests/property.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
from collections.abc import Iterator

import pytest

from odradek.common.errors import ConfigurationError, IllegalStateError, RecordTooLargeError
from odradek.record import SentBinary, SentColumns, StopReason, kernel_sources

if isinstance(kernel_sources.load(kernel_sources.ENCODER), str):
    pytest.skip("the native encoder isn't built", allow_module_level=True)

from odradek.record import kernel_encode

KIB = 1 << 10
VALUE = b"v" * 1000


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    """Empty the pool of memory blocks before the test, and restore its limit afterwards."""
    gc.collect()
    limit = kernel_encode.pool_state()[1]
    kernel_encode.set_pool_limit(0)
    kernel_encode.set_pool_limit(limit)
    yield
    kernel_encode.set_pool_limit(limit)


def filled(records: int, limit: int = 1 << 20, codec: str | None = None) -> memoryview:
    builder = kernel_encode.BatchBuilder(limit, codec)
    for i in range(records):
        assert builder.append(None, VALUE, (), i) == i
    return builder.build()


def same_values(count: int) -> SentColumns:
    """Build many rows with one value of one byte, so that the columns stay small."""
    ends = b"".join(n.to_bytes(4, "little") for n in (0, 1)) * (count // 2 + 1)
    valid = b"\x55" * (count // 8 + 1)  # odd rows are null: offsets go from 1 to 0
    return SentColumns(count, SentBinary(ends, b"x", valid))


def test_a_batchs_memory_is_returned_to_the_pool_with_its_last_view() -> None:
    _, _, lent, _, misses = kernel_encode.pool_state()
    view = filled(100)
    part = view[61:70]
    assert kernel_encode.pool_state()[2] >= lent + 100 * len(VALUE)
    bytes_before = bytes(part)
    del view
    gc.collect()
    assert kernel_encode.pool_state()[2] >= lent + 100 * len(VALUE)
    assert bytes(part) == bytes_before
    part.release()
    del part
    held, limit, now_lent, hits, new_misses = kernel_encode.pool_state()
    assert now_lent == lent
    assert 100 * len(VALUE) <= held <= limit
    assert new_misses > misses
    again = filled(100)
    after = kernel_encode.pool_state()
    assert after[3] > hits
    assert after[4] == new_misses
    again.release()


def test_a_batch_allocates_memory_for_its_records_and_not_for_its_size_limit() -> None:
    lent = kernel_encode.pool_state()[2]
    builders = [kernel_encode.BatchBuilder(1 << 20, None) for _ in range(100)]
    for builder in builders:
        builder.append(b"k", b"v", (), 5)
    assert kernel_encode.pool_state()[2] - lent <= 100 * 4 * KIB
    for builder in builders:
        builder.release()
    assert kernel_encode.pool_state()[2] == lent


def test_the_pools_idle_memory_is_limited() -> None:
    kernel_encode.set_pool_limit(300 * KIB)
    views = [filled(100), filled(1), filled(200), filled(1), filled(3000, 4 << 20)]
    for view in views:
        view.release()
    del views, view
    held, limit, *_ = kernel_encode.pool_state()
    assert 0 < held <= limit == 300 * KIB
    kernel_encode.set_pool_limit(-1)
    assert kernel_encode.pool_state()[:2] == (0, 0)


def test_a_compressed_batch_keeps_only_the_compressed_data() -> None:
    lent = kernel_encode.pool_state()[2]
    view = filled(500, codec="zstd")
    assert len(view) < 20 * KIB
    assert kernel_encode.pool_state()[2] - lent <= 32 * KIB
    view.release()
    assert kernel_encode.pool_state()[2] == lent


def test_if_the_codec_fails_the_batch_keeps_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = kernel_encode.BatchBuilder(1 << 20, "zstd")
    for i in range(50):
        builder.append(None, VALUE, (), i)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_encode, "compress", None)
        for _ in range(2):
            with pytest.raises(TypeError):
                builder.build()
    assert bytes(builder.build()) == bytes(filled(50, codec="zstd"))


def test_the_view_of_an_encoded_batch_is_read_only() -> None:
    view = filled(1)
    assert view.readonly
    assert (view.format, view.itemsize, view.ndim, view.contiguous) == ("B", 1, 1, True)


def test_other_threads_cannot_change_a_batch_while_the_encoder_writes_to_it() -> None:
    rows = 1_000_000
    encoder = kernel_encode.ColumnEncoder(same_values(rows), 1, 1000)
    batch = kernel_encode.BatchBuilder(1 << 30, None)
    encoder.use(0, batch)
    found, begun = [], threading.Barrier(2)

    def work() -> None:
        room = 1 << 40
        begun.wait()
        found.append(encoder.encode(0, rows, timestamp_ms=5, room=room, sticky=0, sticky_room=room))

    thread = threading.Thread(target=work)
    thread.start()
    refused = added = 0
    begun.wait()
    while thread.is_alive():
        try:
            batch.limit_bytes = 1 << 30
        except IllegalStateError:
            refused += 1
            index = batch.append(None, b"x", (), 5)
            if index is not None:  # the call of `encode` has just ended
                assert index == rows + added
                added += 1
    thread.join()
    assert found[0][:2] == (rows, StopReason.DONE)
    assert refused
    assert batch.count == rows + added


def test_native_objects_created_without_init_raise_or_work_but_do_not_crash() -> None:
    batch = kernel_encode.BatchBuilder.__new__(kernel_encode.BatchBuilder)
    assert batch.append(b"k", VALUE, (), 5) == 0
    assert bytes(batch.build()) == bytes(_plain(b"k", VALUE))
    encoder = kernel_encode.ColumnEncoder.__new__(kernel_encode.ColumnEncoder)
    for call in (
        encoder.pieces,
        lambda: encoder.use(0, batch),
        lambda: encoder.encode(0, 0, timestamp_ms=0, room=1),
    ):
        with pytest.raises((IllegalStateError, IndexError)):
            call()


def test_two_threads_may_build_the_same_batch() -> None:
    """One thread may get an error, because building a batch releases the GIL."""
    large = bytes(1 << 20)
    for _ in range(50):
        batch = kernel_encode.BatchBuilder(1 << 21, None)
        batch.append(None, large, (), 5)
        found: list[bytes | str] = []
        both = threading.Barrier(2)

        def build(
            batch: kernel_encode.BatchBuilder = batch,
            found: list[bytes | str] = found,
            both: threading.Barrier = both,
        ) -> None:
            both.wait(10)
            try:
                found.append(bytes(batch.build()))
            except IllegalStateError as error:
                found.append(str(error))

        threads = [threading.Thread(target=build) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = bytes(batch.build())
        assert len(whole) > len(large)
        assert whole in found
        assert set(found) <= {whole, "the batch is built by another thread"}


def test_an_encoder_in_use_by_another_thread_rejects_calls() -> None:
    encoder = kernel_encode.ColumnEncoder(same_values(1_000_000), 1, 1 << 26)
    room = 1 << 26

    begun = threading.Barrier(2)

    def encode() -> None:
        rows = encoder.count
        begun.wait()
        encoder.encode(0, rows, timestamp_ms=0, room=room, sticky=0, sticky_room=room)

    refused: list[str] = []
    for _ in range(100):
        encoder.use(0, kernel_encode.BatchBuilder(room, None))
        thread = threading.Thread(target=encode)
        thread.start()
        begun.wait()
        while thread.is_alive() and not refused:
            try:
                encoder.pieces()
            except IllegalStateError as error:
                refused.append(str(error))
        thread.join()
        if refused:
            break
    assert refused == ["another thread is using this encoder"]


@pytest.mark.parametrize("where", ["key", "value"])
def test_a_buffer_without_dimensions_is_rejected(where: str) -> None:
    """A single number, such as a numpy scalar, has a buffer of zero dimensions."""
    batch = kernel_encode.BatchBuilder(1000, None)
    number = memoryview(ctypes.c_ubyte(7))
    assert number.ndim == 0
    key, value = (number, b"") if where == "key" else (None, number)
    with pytest.raises(TypeError):
        batch.append(key, value, (), 5)  # type: ignore[arg-type]
    assert batch.count == 0


def test_a_second_call_of_init_on_a_native_object_is_rejected() -> None:
    batch = kernel_encode.BatchBuilder(1000, None)
    batch.append(b"k", VALUE, (), 5)
    with pytest.raises(IllegalStateError, match="initialised twice"):
        batch.__init__(1000, None)  # type: ignore[misc]
    assert batch.count == 1
    encoder = kernel_encode.ColumnEncoder(same_values(2), 1, 1000)
    with pytest.raises(IllegalStateError, match="initialised twice"):
        encoder.__init__(same_values(4), 1, 1000)  # type: ignore[misc]
    assert encoder.count == 2


def test_invalid_arguments_of_the_native_encoder_are_rejected() -> None:
    for partitions in (0, -1):
        with pytest.raises(ValueError, match="partitions"):
            kernel_encode.partition_for_key(b"key", partitions)
    with pytest.raises(ConfigurationError, match="2147483648 partitions"):
        kernel_encode.ColumnEncoder(same_values(2), 1 << 31, 1000)
    encoder = kernel_encode.ColumnEncoder(same_values(2), 1, 1000)
    with pytest.raises(TypeError, match="BatchBuilder"):
        encoder.use(0, None)  # type: ignore[arg-type]
    batch = kernel_encode.BatchBuilder(1000, None)
    with pytest.raises(TypeError, match="the name of a header is None"):
        batch.append(None, b"", [(None, b"")], 5)  # type: ignore[list-item]


def test_a_record_whose_headers_close_the_batch_is_not_added() -> None:
    batch = kernel_encode.BatchBuilder(1000, None)

    class Closing(list[tuple[str, bytes | None]]):
        def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
            batch.close()
            return super().__iter__()

    assert batch.append(b"k", b"v", Closing([("h", None)]), 5) is None
    assert batch.count == 0


def test_a_record_of_two_gibibytes_is_rejected() -> None:
    batch = kernel_encode.BatchBuilder(1000, None)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(
        -1, (1 << 31) - 1 - 61, flags=flags
    ) as large:  # its pages are never read or written
        with pytest.raises(RecordTooLargeError, match="2 GiB"):
            batch.append(None, large, (), 5)  # type: ignore[arg-type]
        assert (batch.count, batch.estimated_size) == (0, 61)


def _plain(key: bytes, value: bytes) -> memoryview:
    builder = kernel_encode.BatchBuilder(1, None)
    builder.append(key, value, (), 5)
    return builder.build()
