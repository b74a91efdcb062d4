"""Batches that Kafka 4.3.1's own MemoryRecordsBuilder wrote, read and written again by ours."""

from __future__ import annotations

import pytest

from odradek.common.errors import UnsupportedFeatureError
from odradek.record import BatchBuilder, decode, read_header
from odradek.record.reference import encode, encode_marker

JAVA = {
    "none": bytes.fromhex(
        "00000000000003e8000001a50000000502f0d9e0df0000000000030000018bcfe568000000018bcfe9fbe0ff"
        "ffffffffffffffffffffffffff0000000422000000046b311276616c7565206f6e650018000a02010c6e6f20"
        "6b6579003a00cf0f0408676f6e65010602680278147363686cc3bc7373656c010000ea0400c0cf240600d804"
    )
    + bytes(301),
    "gzip": bytes.fromhex(
        "00000000000003e80000009000000005029a25f4cd0001000000030000018bcfe568000000018bcfe9fbe0ff"
        "ffffffffffffffffffffffffff000000041f8b08000000000000ff5362606060c936142a4bcc294d55c8cf4b"
        "659060e06262e4c9cb57c84ead64b06238cfcfc2910e14676463ca60aa10294ecec839bca7b83835879181e1"
        "150bc381f32a6c0c3758184601f10000bbfe152c74010000"
    ),
    "zstd": bytes.fromhex(
        "00000000000003e80000008d0000000502e60ca17f0014000000030000018bcfe568000000018bcfe9fbe000"
        "0000000000004d00030000000c0000000428b52ffd0058840200840422000000046b311276616c7565206f6e"
        "650018000a02010c6e6f206b6579003a00cf0f0408676f6e65010602680278147363686cc3bc7373656c0100"
        "00ea0400c0cf240600d804000100488a0aa2010000"
    ),
    "lz4": bytes.fromhex(
        "00000000000003e8000000950000000502549e8a510003000000030000018bcfe568000000018bcfe9fbe0ff"
        "ffffffffffffffffffffffffff0000000404224d1860408255000000ff3a22000000046b311276616c756520"
        "6f6e650018000a02010c6e6f206b6579003a00cf0f0408676f6e65010602680278147363686cc3bc7373656c"
        "010000ea0400c0cf240600d80400000200ff1450000000000000000000"
    ),
    "snappy": bytes.fromhex(
        "00000000000003e8000000a20000000502e2dc47460002000000030000018bcfe568000000018bcfe9fbe0ff"
        "ffffffffffffffffffffffffff0000000482534e415050590000000001000000010000005df402f049220000"
        "00046b311276616c7565206f6e650018000a02010c6e6f206b6579003a00cf0f0408676f6e65010602680278"
        "147363686cc3bc7373656c010000ea0400c0cf240600d804000000fe0300fe0300fe0300fe0300a60300"
    ),
    "append": bytes.fromhex(
        "00000000000003e8000001a5000000050256d1bf870008000000030000018bcfe56800000001a3185c5000ff"
        "ffffffffffffffffffffffffff0000000422000000046b311276616c7565206f6e650018000a02010c6e6f20"
        "6b6579003a00cf0f0408676f6e65010602680278147363686cc3bc7373656c010000ea0400c0cf240600d804"
    )
    + bytes(301),
    "abort": bytes.fromhex(
        "00000000000003ec000000420000000502079744760030000000000000018bcfe568640000018bcfe5686400"
        "0000000000004d0003ffffffff000000012000000008000000000c00000000000900"
    ),
    "commit": bytes.fromhex(
        "00000000000003ed00000042000000050221c1ffea0030000000000000018bcfe568c80000018bcfe568c800"
        "0000000000004d0003ffffffff000000012000000008000000010c00000000000900"
    ),
    "empty": bytes.fromhex(
        "00000000000007d00000003100000005029c45c2cf001000000009ffffffffffffffff0000018bcfe5680000"
        "0000000000004d00030000000c00000000"
    ),
    "magic0": bytes.fromhex("0000000000000003000000101fecd70a0000000000016b0000000176"),
    "magic1": bytes.fromhex(
        "0000000000000003000000187fdc1dec01000000000000000005000000016b0000000176"
    ),
}

ROWS = [
    (1000, 1700000000000, 0, b"k1", b"value one", ()),
    (1001, 1700000000005, 0, None, b"no key", ()),
    (1002, 1699999999000, 0, b"gone", None, (("h", b"x"), ("schlüssel", None), ("", b""))),
    (1003, 1700000300000, 0, b"", bytes(300), ()),
]


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_javas_batch_gives_its_records(name: str) -> None:
    found = decode(memoryview(JAVA[name]), start_offset=0)
    assert list(found.columns) == ROWS
    assert (found.next_offset, found.finished, found.batches) == (1004, True, 1)
    assert found.bytes_consumed == len(JAVA[name])
    assert found.last_leader_epoch == 5


def test_log_append_time_replaces_the_producers_times() -> None:
    found = decode(memoryview(JAVA["append"]), start_offset=0)
    assert list(found.columns) == [
        (row[0], 1800000000000, 1, row[3], row[4], row[5]) for row in ROWS
    ]


def test_header_of_a_transactional_batch() -> None:
    header = read_header(memoryview(JAVA["zstd"]))
    assert header.transactional
    assert not header.control
    assert not header.log_append_time
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert (header.base_offset, header.last_offset, header.count) == (1000, 1003, 4)
    assert header.size == len(JAVA["zstd"])
    assert header.max_timestamp == 1700000300000


@pytest.mark.parametrize("name", ["none", "append"])
def test_reference_writes_what_java_writes(name: str) -> None:
    append_time = 1800000000000 if name == "append" else None
    assert encode(ROWS, leader_epoch=5, log_append_time_ms=append_time) == JAVA[name]


def test_reference_writes_javas_empty_batch() -> None:
    written = encode(
        [],
        base_offset=2000,
        last_offset=2009,
        leader_epoch=5,
        transactional=True,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
    )
    # Java keeps the last timestamp; every other byte but the checksum is equal.
    java = JAVA["empty"]
    assert (written[:17], written[21:35], written[43:]) == (java[:17], java[21:35], java[43:])


def test_builder_writes_what_java_writes() -> None:
    builder = BatchBuilder(1 << 20, None)
    for _, timestamp_ms, _, key, value, headers in ROWS:
        builder.append(key, value, headers, timestamp_ms)
    built = bytes(builder.build())
    assert built[:8] == bytes(8)  # the broker sets the offset,
    assert built[12:16] == b"\xff\xff\xff\xff"  # and the leader epoch
    assert (built[8:12], built[16:]) == (JAVA["none"][8:12], JAVA["none"][16:])


@pytest.mark.parametrize(("name", "offset", "time"), [("abort", 1004, 100), ("commit", 1005, 200)])
def test_reference_writes_javas_markers(name: str, offset: int, time: int) -> None:
    marker = encode_marker(
        offset, 1700000000000 + time, producer_id=77, producer_epoch=3, commit=name == "commit"
    )
    java = JAVA[name]
    # Leader epoch, checksum and the coordinator epoch in the value are the broker's own.
    assert (marker[:12], marker[16:17], marker[21:-5]) == (java[:12], java[16:17], java[21:-5])


def test_empty_batch_moves_the_position_only() -> None:
    found = decode(memoryview(JAVA["empty"]), start_offset=2003)
    assert (found.columns.count, found.next_offset, found.batches) == (0, 2010, 1)


def test_transaction_committed_and_aborted() -> None:
    def log(marker: str) -> memoryview:
        return memoryview(JAVA["zstd"] + JAVA[marker])

    committed = decode(log("commit"), start_offset=0)
    assert list(committed.columns) == ROWS
    assert (committed.control_batches, committed.next_offset) == (1, 1006)
    aborted = decode(log("abort"), start_offset=0, aborted=[(77, 1000)])
    assert (aborted.columns.count, aborted.aborted_batches, aborted.next_offset) == (0, 1, 1005)
    assert aborted.aborted_left == ()


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"offset 3 .*\(magic {magic}\)"):
        decode(memoryview(JAVA[f"magic{magic}"]), start_offset=0)
