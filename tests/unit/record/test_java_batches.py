"""Decode batches that Kafka 4.3.1's MemoryRecordsBuilder wrote, and encode the same batches."""

from __future__ import annotations

import pytest

from odradek.record import BatchBuilder, decode, read_header
from odradek.record.columns import Row
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

OLD = {
    "0-none": bytes.fromhex(
        "000000000000000a000000196c6e25840000000000026b310000000976616c7565206f6e6500000000000000"
        "0b000000145d50ab640000ffffffff000000066e6f206b6579000000000000000e0000001296100b91000000"
        "000004676f6e65ffffffff000000000000000f0000004a8cf682490000000000000000003c00000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "000000000000000000"
    ),
    "1-none": bytes.fromhex(
        "000000000000000a000000215f289a7301000000018bcfe56800000000026b310000000976616c7565206f6e"
        "65000000000000000b0000001c6005d9ac01000000018bcfe56805ffffffff000000066e6f206b6579000000"
        "000000000e0000001aa0dccc0701000000018bcfe5641800000004676f6e65ffffffff000000000000000f00"
        "000052ce3ffb5101000000018bcfe9fbe0000000000000003c00000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    ),
    "0-gzip": bytes.fromhex(
        "000000000000000f000000766635d0140001ffffffff000000681f8b08000000000000ff636000032e2096cc"
        "c9536d01f398b20d81246759624e69aa427e5e2a440d0337108bc406ac4e6160f80f04401e5b5ebe42766a25"
        "549e0f8885a609704f04f358d2813aa1ea40801f88bd7abe357932c0800d03050000cce60c98b9000000"
    ),
    "1-gzip": bytes.fromhex(
        "000000000000000f0000008cfe39d0b901010000018bcfe9fbe0ffffffff000000761f8b08000000000000ff"
        "63608003c5788d59c58c400663f7f9a7192011a66c4320c9599698539aaa909f970a5508522393c07a730d5c"
        "31eb7f200072d8f2f215b2532ba1ea5880586ac19d33ec3075291220d174a04950f520c00ac441e7ec7f0742"
        "55bdfcfd002a63c340010000cf854450d9000000"
    ),
    "0-snappy": bytes.fromhex(
        "000000000000000f000000916794a9640002ffffffff0000008382534e415050590000000001000000010000"
        "006fb90100000901200a000000196c6e2584050f3c026b310000000976616c7565206f6e6505156c00000b00"
        "0000145d50ab640000ffffffff000000066e6f206b6579000901200e0000001296100b91050f1004676f6e65"
        "0d280101200f0000004a8cf68249010d0501003c0506da0100"
    ),
    "1-snappy": bytes.fromhex(
        "000000000000000f000000af73060a4301020000018bcfe9fbe0ffffffff0000009982534e41505059000000"
        "00010000000100000085d9010000190134215f289a7301000000018bcfe56801183c026b310000000976616c"
        "7565206f6e650114080000000124141c6005d9ac01010d012d3805ffffffff000000066e6f206b657901252c"
        "000000040000001aa0dccc07112804641801160c676f6e650d300101200500000052ce3ffb510d2608e9fbe0"
        "0117100000003c00ea0100"
    ),
    "0-lz4": bytes.fromhex(
        "000000000000000f0000009793a0bf5d0003ffffffff0000008904224d1860401a7a00000012000100910a00"
        "0000196c6e25840f00f101026b310000000976616c7565206f6e651500f00c00000b000000145d50ab640000"
        "ffffffff000000066e6f206b65791d00c10000000e0000001296100b910e005304676f6e652800000200900f"
        "0000004a8cf682490d00010200113c06000f02001f50000000000000000000"
    ),
    "1-lz4": bytes.fromhex(
        "000000000000000f000000b09380d2a601030000018bcfe9fbe0ffffffff0000009a04224d186040828b0000"
        "0016000100e0215f289a7301000000018bcfe5681800f001026b310000000976616c7565206f6e6514000020"
        "00850000001c6005d9ac2d00f10005ffffffff000000066e6f206b65792600b40000040000001aa0dccc0728"
        "00a3641800000004676f6e653000000200930500000052ce3ffb51260030e9fbe01700410000003c06000f02"
        "001f50000000000000000000"
    ),
    "1-append": bytes.fromhex(
        "000000000000000f00000086e15aa1e70109000001a3185c5000ffffffff000000701f8b08000000000000ff"
        "6360800345bb9f094a8c1c0c0c8c8b25620240224cd9864092b32c31a73455213f2f15aa901188658e6fdb28"
        "8c50fc1f0880a26c79f90ad9a99550752c402cd5f366ee5b144359d2812641d583002b100759adda2286a20a"
        "046c1828000046608f11d9000000"
    ),
}
"""Messages of formats 0 and 1, written by Kafka 3.9.2's MemoryRecordsBuilder."""

ROWS = [
    (1000, 1700000000000, 0, b"k1", b"value one", ()),
    (1001, 1700000000005, 0, None, b"no key", ()),
    (1002, 1699999999000, 0, b"gone", None, (("h", b"x"), ("schlüssel", None), ("", b""))),
    (1003, 1700000300000, 0, b"", bytes(300), ()),
]


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_written_by_java_are_decoded(name: str) -> None:
    found = decode(memoryview(JAVA[name]), start_offset=0)
    assert list(found.columns) == ROWS
    assert (found.next_offset, found.finished, found.batches) == (1004, True, 1)
    assert found.bytes_consumed == len(JAVA[name])
    assert found.last_leader_epoch == 5


def test_log_append_time_replaces_the_producers_timestamps() -> None:
    found = decode(memoryview(JAVA["append"]), start_offset=0)
    assert list(found.columns) == [
        (row[0], 1800000000000, 1, row[3], row[4], row[5]) for row in ROWS
    ]


def test_the_header_of_a_transactional_batch_is_read() -> None:
    header = read_header(memoryview(JAVA["zstd"]))
    assert header.transactional
    assert not header.control
    assert not header.log_append_time
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert (header.base_offset, header.last_offset, header.count) == (1000, 1003, 4)
    assert header.size == len(JAVA["zstd"])
    assert header.max_timestamp == 1700000300000


@pytest.mark.parametrize("name", ["none", "append"])
def test_the_reference_encoder_writes_the_same_batches_as_java(name: str) -> None:
    append_time = 1800000000000 if name == "append" else None
    assert encode(ROWS, leader_epoch=5, log_append_time_ms=append_time) == JAVA[name]


def test_the_reference_encoder_writes_the_same_empty_batch_as_java() -> None:
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
    # Java keeps the last timestamp; all other bytes but the checksum are equal.
    java = JAVA["empty"]
    assert (written[:17], written[21:35], written[43:]) == (java[:17], java[21:35], java[43:])


def test_the_builder_writes_the_same_batch_as_java() -> None:
    builder = BatchBuilder(1 << 20, None)
    for _, timestamp_ms, _, key, value, headers in ROWS:
        builder.append(key, value, headers, timestamp_ms)
    built = bytes(builder.build())
    assert built[:8] == bytes(8)  # the broker sets the base offset
    assert built[12:16] == b"\xff\xff\xff\xff"  # the broker sets the leader epoch
    assert (built[8:12], built[16:]) == (JAVA["none"][8:12], JAVA["none"][16:])


@pytest.mark.parametrize(("name", "offset", "time"), [("abort", 1004, 100), ("commit", 1005, 200)])
def test_the_reference_encoder_writes_the_same_transaction_markers_as_java(
    name: str, offset: int, time: int
) -> None:
    marker = encode_marker(
        offset, 1700000000000 + time, producer_id=77, producer_epoch=3, commit=name == "commit"
    )
    java = JAVA[name]
    # The broker sets the leader epoch, the checksum, and the coordinator epoch in the value.
    assert (marker[:12], marker[16:17], marker[21:-5]) == (java[:12], java[16:17], java[21:-5])


def test_an_empty_batch_only_advances_the_position() -> None:
    found = decode(memoryview(JAVA["empty"]), start_offset=2003)
    assert (found.columns.count, found.next_offset, found.batches) == (0, 2010, 1)


def test_records_of_a_committed_transaction_are_returned_and_of_an_aborted_one_hidden() -> None:
    def log(marker: str) -> memoryview:
        return memoryview(JAVA["zstd"] + JAVA[marker])

    committed = decode(log("commit"), start_offset=0)
    assert list(committed.columns) == ROWS
    assert (committed.control_batches, committed.next_offset) == (1, 1006)
    aborted = decode(log("abort"), start_offset=0, aborted=[(77, 1000)])
    assert (aborted.columns.count, aborted.aborted_batches, aborted.next_offset) == (0, 1, 1005)
    assert aborted.aborted_left == ()


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_formats_0_and_1_written_by_java_are_decoded(magic: int) -> None:
    found = decode(memoryview(JAVA[f"magic{magic}"]), start_offset=0)
    assert list(found.columns) == [(3, 5 if magic else -1, magic - 1, b"k", b"v", ())]


@pytest.mark.parametrize("name", OLD)
def test_message_sets_of_formats_0_and_1_written_by_java_are_decoded(name: str) -> None:
    rows: list[Row] = [
        (10, 1700000000000, 0, b"k1", b"value one", ()),
        (11, 1700000000005, 0, None, b"no key", ()),
        (14, 1699999999000, 0, b"gone", None, ()),
        (15, 1700000300000, 0, b"", bytes(60), ()),
    ]
    if name.startswith("0"):
        rows = [(row[0], -1, -1, *row[3:]) for row in rows]
    elif name == "1-append":
        rows = [(row[0], 1800000000000, 1, *row[3:]) for row in rows]
    found = decode(memoryview(OLD[name]), start_offset=0)
    assert list(found.columns) == rows
    assert (found.next_offset, found.finished) == (16, True)


def test_java_writes_a_wrong_header_checksum_in_format_0() -> None:
    """The recorded lz4 frames of format 0 have the wrong header checksum of KAFKA-3160."""
    at = OLD["0-lz4"].index(bytes.fromhex("04224d18"))
    assert OLD["0-lz4"][at : at + 6] == OLD["1-lz4"][at + 8 : at + 14]
    assert OLD["0-lz4"][at + 6] != OLD["1-lz4"][at + 14]
