"""Test the reader of response frames: bytes in pieces, memory use, peers that aren't Kafka."""

import mmap
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.volume import examples

from odradek.common.errors import MalformedMessageError, NotKafkaError
from odradek.network import frame_buffers
from odradek.network.frame import FIRST_LIMIT, SCRATCH, FrameReader
from odradek.network.frame_buffers import STEP


def feed(reader: FrameReader, data: bytes, sizes: list[int] | None = None) -> list[bytes]:
    """Pass bytes to a reader in pieces of these sizes, by default as large as its buffer."""
    frames: list[bytes] = []
    turn = 0
    while data:
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(data), sizes[turn % len(sizes)] if sizes else len(data))
        turn += 1
        buffer[:size] = data[:size]
        data = data[size:]
        frames += [bytes(f) for f in reader.buffer_updated(size)]
    return frames


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(len(b).to_bytes(4, "big") + b for b in bodies)


EDGES = st.sampled_from([0, 5, SCRATCH - 5, SCRATCH - 4, SCRATCH - 3, SCRATCH + 1, 3 * SCRATCH])


SMALL = (st.integers(0, 60), st.integers(1, 30))
LARGE = (EDGES, st.integers(20000, 70000))  # around the size of the scratch buffer


@pytest.mark.parametrize(("lengths", "sizes"), [SMALL, LARGE], ids=["small", "large"])
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_the_same_frames_are_returned_however_the_bytes_are_split(
    lengths: st.SearchStrategy[int], sizes: st.SearchStrategy[int], data: st.DataObject
) -> None:
    body = st.builds(lambda n, b: bytes([b]) * n, lengths, st.integers(0, 255))
    bodies = data.draw(st.lists(body, min_size=1, max_size=6))
    pieces = data.draw(st.lists(sizes, min_size=1, max_size=5))
    assert feed(FrameReader(), framed(bodies), pieces) == bodies


def test_a_large_frame_is_received_into_one_buffer_without_a_copy() -> None:
    reader = FrameReader(8 << 20)
    body = bytes(range(256)) * 8192  # 2 MiB
    data = framed([body])
    reader.get_buffer()[:SCRATCH] = data[:SCRATCH]
    assert reader.buffer_updated(SCRATCH) == []
    rest = reader.get_buffer()
    assert len(rest) == len(body) + 4 - SCRATCH
    rest[:] = data[SCRATCH:]
    (frame,) = reader.buffer_updated(len(rest))
    assert frame == body
    assert frame.obj is rest.obj


@contextmanager
def allocates_at_most(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-1, -(2**31), FIRST_LIMIT + 1, 2**31 - 1])
def test_a_frame_length_outside_the_limit_is_rejected_before_memory_is_allocated(
    length: int,
) -> None:
    reader = FrameReader()
    reader.get_buffer()[:4] = length.to_bytes(4, "big", signed=True)
    with allocates_at_most(1 << 16), pytest.raises(MalformedMessageError, match="limit 1048576"):
        reader.buffer_updated(4)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_large_frame_uses_no_memory_until_its_bytes_arrive() -> None:
    reader, before = FrameReader(1 << 30), resident_bytes()
    reader.get_buffer()[:4] = (1 << 30).to_bytes(4, "big")
    assert reader.buffer_updated(4) == []
    assert len(reader.get_buffer()) == 1 << 30
    assert resident_bytes() - before < 1 << 20


@pytest.fixture
def no_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_buffers, "MAPS", False)


@pytest.mark.usefixtures("no_mappings")
def test_without_mmap_a_large_frame_allocates_at_most_16_mib_at_first() -> None:
    reader = FrameReader(1 << 30)
    reader.get_buffer()[:4] = (1 << 30).to_bytes(4, "big")
    with allocates_at_most(STEP + (1 << 20)):
        assert reader.buffer_updated(4) == []
        assert len(reader.get_buffer()) == STEP


@pytest.mark.usefixtures("no_mappings")
def test_without_mmap_a_frames_buffer_above_16_mib_grows_as_bytes_arrive() -> None:
    body = bytes(STEP + STEP // 2)
    reader = FrameReader(64 << 20)
    frames = feed(reader, framed([body, b"next"]))
    assert [len(f) for f in frames] == [len(body), 4]
    assert frames[0] == body


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"<html><body>", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS"),
        (b"\x16\x03\x01\x00\xf4\x01\x00", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
)
def test_the_error_names_the_protocol_of_a_peer_that_is_not_kafka(first: bytes, words: str) -> None:
    with pytest.raises(NotKafkaError, match=f"the peer speaks {words}"):
        feed(FrameReader(), first)


def test_bytes_after_a_rejected_frame_are_ignored() -> None:
    reader = FrameReader()
    with pytest.raises(NotKafkaError):
        feed(reader, b"HTTP" + bytes(SCRATCH - 4))
    assert feed(reader, framed([b"fine"])) == []
    assert len(reader.get_buffer()) > 0


def test_the_frame_size_limit_can_be_raised_for_a_peer_that_is_a_broker() -> None:
    body = bytes(FIRST_LIMIT + 1)
    with pytest.raises(MalformedMessageError):
        feed(FrameReader(), framed([body]))
    reader = FrameReader()
    reader.limit = 2 * FIRST_LIMIT
    assert feed(reader, framed([body])) == [body]
