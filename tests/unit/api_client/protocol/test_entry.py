"""The entry's bytes, compared with the table in the module's docstring, and everything that makes one unreadable."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from msgspec.structs import replace

from api_client.protocol import entry
from api_client.protocol.entry import (
    FIXED_HEADER_BYTES,
    MAX_DEGREE,
    MAX_DEVIATION_SECONDS,
    Header,
    Smoothed,
    UnreadableEntry,
    decode_header,
    encode,
    frozen_token,
    with_times_shifted,
)

DIGEST = bytes(range(16))
HEADER = Header(
    token=0x0102030405060708 >> 12, generation=0x1112131415161718 >> 12, soft_expiry_us=1_800_000_000_000_001,
    nonce=b"NONCE678", read_started_us=1_700_000_000_000_002, fetched_at_us=1_700_000_000_250_002, ttl_seconds=300.5,
    delta=Smoothed(1.25, 0.5), run=Smoothed(0.75, 0.125), beta=5.5, degree=77, sigma=2.5, draw_digits=6,
)  # fmt: skip
RAW = encode(HEADER, DIGEST, b"payload")
# field of the docstring's table: how its bytes are packed, and what must be in them
FIELDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "magic C7 58": ("2s", (b"\xc7X",)),
    "format version": ("B", (1,)),
    "must-understand flags": ("B", (0,)),
    "other flags": ("B", (0,)),
    "digits at which the draw is cut": ("B", (6,)),
    "header length": ("H", (88,)),
    "the first bytes of the key's digest": ("8s", (DIGEST[:8],)),
    "degree of the query's node": ("I", (77,)),
    "token": ("Q", (HEADER.token,)),
    "generation": ("Q", (HEADER.generation,)),
    "soft expiry, µs": ("Q", (HEADER.soft_expiry_us,)),
    "nonce": ("8s", (b"NONCE678",)),
    "read started, µs": ("Q", (HEADER.read_started_us,)),
    "fetched, µs after that": ("I", (250_000,)),
    "ttl, s": ("f", (300.5,)),
    "δ: mean, deviation, s": ("fe", (1.25, 0.5)),
    "run: mean, deviation, s": ("fe", (0.75, 0.125)),
    "effective β": ("f", (5.5,)),
    "σ, the query's volatility": ("f", (2.5,)),
}
ROWS = re.findall(
    r"^ {7,9}(\d+) +(\d+)  (.+?)(?:: a bit.*| \(.*|: 88.*| *[┐│┘].*| {3,}.*)?$", entry.__doc__ or "", re.MULTILINE
)


def test_the_docstring_s_rows_follow_each_other_without_a_gap_up_to_the_header_s_end() -> None:
    position = 0
    for offset, size, _ in ROWS:
        assert int(offset) == position
        position += int(size)
    assert position == FIXED_HEADER_BYTES == 88
    assert len(ROWS) == len(FIELDS)


@pytest.mark.parametrize(("number", "field"), list(enumerate(FIELDS)))
def test_a_field_lies_where_the_docstring_says(number: int, field: str) -> None:
    offset, size, title = ROWS[number]
    assert title.startswith(field)
    form, expected = FIELDS[field]
    assert struct.calcsize(f">{form}") == int(size)
    assert struct.unpack_from(f">{form}", RAW, int(offset)) == expected


def test_a_compressed_payload_is_a_flag_that_a_reader_must_understand() -> None:
    raw = encode(replace(HEADER, is_compressed=True), DIGEST, b"frame")
    assert (raw[3], RAW[3], entry.MustUnderstand.COMPRESSED) == (1, 0, 1)
    assert (decode_header(raw, DIGEST).is_compressed, decode_header(RAW, DIGEST).is_compressed) == (True, False)


def test_an_entry_is_its_header_and_its_payload() -> None:
    assert RAW[88:] == b"payload"
    assert decode_header(RAW, DIGEST) == HEADER


def test_a_degree_beyond_its_field_is_capped() -> None:
    assert decode_header(encode(replace(HEADER, degree=2**40), DIGEST, b""), DIGEST).degree == MAX_DEGREE


@pytest.mark.parametrize(("fetch_us", "kept_us"), [(2**32 - 1, 2**32 - 1), (2**32, 2**32 - 1), (-1, 0)])
def test_a_load_s_duration_is_clamped_to_0_and_to_its_field_s_maximum(fetch_us: int, kept_us: int) -> None:
    header = replace(HEADER, fetched_at_us=HEADER.read_started_us + fetch_us)
    assert decode_header(encode(header, DIGEST, b""), DIGEST).fetched_at_us == HEADER.read_started_us + kept_us


def test_a_deviation_is_stored_to_three_digits_and_capped_at_its_field_s_maximum() -> None:
    header = replace(HEADER, delta=Smoothed(1.25, 1e6), run=Smoothed(1e6, 0.0123456))
    decoded = decode_header(encode(header, DIGEST, b""), DIGEST)
    assert decoded.delta == Smoothed(1.25, MAX_DEVIATION_SECONDS)
    assert decoded.run == Smoothed(1e6, pytest.approx(0.0123456, rel=1e-3))


def test_an_extension_field_of_a_later_release_is_skipped() -> None:
    known = encode(replace(HEADER, bookmarks=("b1",)), DIGEST, b"")
    unknown = b"\xee\x00\x03abc"
    raw = known[:6] + struct.pack(">H", len(known) + len(unknown)) + known[8:88] + unknown + known[88:] + b"payload"
    decoded = decode_header(raw, DIGEST)
    assert (decoded.bookmarks, raw[decoded.length :]) == (("b1",), b"payload")


def test_a_flag_that_may_be_ignored_is_ignored() -> None:
    assert decode_header(RAW[:4] + b"\x82" + RAW[5:], DIGEST).token == HEADER.token


def patched(offset: int, new: bytes, raw: bytes = RAW) -> bytes:
    return raw[:offset] + new + raw[offset + len(new) :]


WITH_BOOKMARKS = encode(replace(HEADER, bookmarks=("bookmark",)), DIGEST, b"payload")
UNREADABLE = {
    "empty": (b"", "garbage"),
    "text": (b"hello world" * 20, "garbage"),
    "cut in the header": (RAW[:87], "garbage"),
    "wrong magic": (patched(0, b"XX"), "garbage"),
    "older version": (patched(2, b"\x00"), "version"),
    "newer version": (patched(2, b"\x02"), "version"),
    "newer version, with an unknown flag": (patched(2, b"\x02\xff"), "version"),
    "unknown must-understand flag": (patched(3, b"\x04"), "flags"),
    "an unknown must-understand flag beside a known one": (patched(3, b"\x05"), "flags"),
    "all must-understand flags": (patched(3, b"\xff"), "flags"),
    "another key's": (patched(8, b"\xff"), "digest"),
    "another key's, in the last byte kept": (patched(15, b"\xff"), "digest"),
    "header shorter than a header": (patched(6, b"\x00\x57"), "garbage"),
    "header longer than the entry": (patched(6, b"\xff\xff"), "garbage"),
    "a token beyond 2^53": (patched(20, struct.pack(">Q", 2**53)), "garbage"),
    "cut in the extensions": (patched(6, struct.pack(">H", 93)), "garbage"),
    "an extension longer than the header": (patched(89, b"\xff\xff", WITH_BOOKMARKS), "garbage"),
    "bookmarks that are no text": (patched(91, b"\xff", WITH_BOOKMARKS), "garbage"),
    "samples of half a float": (
        patched(88, b"\x02\x00\x07", WITH_BOOKMARKS[:6] + b"\x00\x62" + WITH_BOOKMARKS[8:]),
        "garbage",
    ),
}


@pytest.mark.parametrize("name", list(UNREADABLE))
def test_an_unreadable_entry_names_its_reason(name: str) -> None:
    raw, reason = UNREADABLE[name]
    with pytest.raises(UnreadableEntry) as caught:
        decode_header(raw, DIGEST)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("raw", "token"),
    [
        (None, 0),
        (b"", 0),
        (RAW, HEADER.token),
        (RAW[:52], HEADER.token),
        (RAW[:51], 0),
        (patched(2, b"\x09"), HEADER.token),
        (patched(3, b"\xff"), HEADER.token),
        (patched(8, bytes(8)), HEADER.token),
        (patched(0, b"XX"), 0),
        (patched(20, struct.pack(">Q", 2**53)), 0),
        (patched(20, struct.pack(">Q", 2**53 - 1)), 2**53 - 1),
    ],
)
def test_the_token_is_read_at_its_frozen_place_whatever_the_rest_is(raw: bytes | None, token: int) -> None:
    assert frozen_token(raw) == token


@pytest.mark.parametrize("bookmarks", [("x" * 65_536,), ("x" * 40_000, "y" * 40_000)])
def test_extensions_that_do_not_fit_are_refused_and_not_cut(bookmarks: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="bytes"):
        encode(replace(HEADER, bookmarks=bookmarks), DIGEST, b"")


@pytest.mark.parametrize(
    ("by_us", "soft_expiry_us", "shifted_us"),
    [(50_000, 1_800_000_000_000_001, 1_800_000_000_050_001), (-50_000, 49_999, 0), (50_000, 2**64 - 2, 2**64 - 1)],
    ids=["later", "before 1970", "damaged"],
)
def test_times_are_shifted_within_their_range(by_us: int, soft_expiry_us: int, shifted_us: int) -> None:
    raw = encode(replace(HEADER, soft_expiry_us=soft_expiry_us), DIGEST, b"payload")
    assert decode_header(with_times_shifted(raw, by_us), DIGEST).soft_expiry_us == shifted_us
