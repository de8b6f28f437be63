"""Compressed payloads: worth it or left alone, and no frame takes more memory than is allowed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from typing import Any

import pytest
import zstandard

from api_client.errors import DecodeError
from api_client.protocol import payload
from api_client.protocol import payload as compression
from api_client.protocol.payload import Packed, pack
from tests.support.payloads import read_payload

KIB, MIB = 1024, 1024 * 1024
ROWS = [{"name": f"person {number}", "city": "Amsterdam"} for number in range(200)]
PLAIN = payload.encode(ROWS)
FRAME = pack(Packed(PLAIN), 1).content


def read(frame: bytes, max_bytes: int = 100 * KIB, **options: Any) -> Any:
    return read_payload(frame, is_compressed=True, query="friends_of", max_bytes=max_bytes, **options)


def bomb(size: int, *, declares_size: bool = True) -> bytes:
    """A frame of some kilobytes that expands to ``size``."""
    compressor = zstandard.ZstdCompressor().compressobj(size=size if declares_size else -1)
    zeros = bytes(MIB)
    return b"".join(compressor.compress(zeros) for _ in range(size // MIB)) + compressor.flush()


def lying(frame: bytes, size: int) -> bytes:
    assert frame[4] & 0b1110_0000 == 0b1000_0000, "one byte for the window, then four for the size"
    return frame[:6] + size.to_bytes(4, "little") + frame[10:]


def test_a_payload_is_compressed_from_the_minimum_size_on_and_expands_to_the_same_value() -> None:
    packed = pack(Packed(PLAIN), len(PLAIN))
    assert packed.is_compressed
    assert len(packed.content) < len(PLAIN) / 3
    assert read(packed.content) == ROWS
    assert read(b"header" + packed.content, offset=6) == ROWS


@pytest.mark.parametrize("min_bytes", [0, len(PLAIN) + 1])
def test_a_payload_below_the_minimum_size_is_not_compressed_and_0_means_never(min_bytes: int) -> None:
    assert pack(Packed(PLAIN), min_bytes) == Packed(PLAIN, is_compressed=False)


@pytest.mark.parametrize(("zeros", "is_compressed"), [(0, False), (100, False), (200, True)])
def test_a_payload_stays_uncompressed_unless_compression_saves_an_eighth(zeros: int, *, is_compressed: bool) -> None:
    noise = random.Random(1).randbytes(1_000)  # noqa: S311 - no secret
    packed = pack(Packed(noise + bytes(zeros)), 1)
    assert packed.is_compressed is is_compressed
    if not is_compressed:
        assert packed.content == noise + bytes(zeros)


def test_the_size_limit_applies_to_the_stored_and_to_the_expanded_payload() -> None:
    assert read(FRAME, max_bytes=len(PLAIN)) == ROWS
    with pytest.raises(DecodeError, match=f"'friends_of' has {len(PLAIN)} bytes; .* allows {len(PLAIN) - 1}") as caught:
        read(FRAME, max_bytes=len(PLAIN) - 1)
    assert caught.value.query == "friends_of"
    with pytest.raises(DecodeError, match=f"has {len(FRAME)} bytes"):
        read(FRAME, max_bytes=len(FRAME) - 1)


BIG = bomb(4 * MIB)
BROKEN = {
    "nothing": b"",
    "no frame": PLAIN,
    "magic alone": FRAME[:4],
    "cut": FRAME[:-1],
    "more after it": FRAME + b"\x00",
    "another frame after it": FRAME + FRAME,
    "a skippable frame": b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello",
    "no declared size": bomb(MIB, declares_size=False),
    "larger than declared": lying(BIG, 1_000),
    "smaller than declared": lying(BIG, 5 * MIB),
    "a window of terabytes": BIG[:5] + b"\xff" + BIG[6:],
    "an unknown dictionary": zstandard.ZstdCompressor(
        dict_data=zstandard.ZstdCompressionDict(PLAIN[:2_000], dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    ).compress(PLAIN),
    "changed in the middle": FRAME[:40] + bytes(byte ^ 0xFF for byte in FRAME[40:60]) + FRAME[60:],
    "no MessagePack in it": pack(Packed(b"\xc1" * 1_000), 1).content,
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_frame_is_a_decode_error(name: str) -> None:
    with pytest.raises(DecodeError, match=r"payload of 'friends_of' is broken") as caught:
        read(BROKEN[name], max_bytes=8 * MIB)
    assert caught.value.query == "friends_of"


READ_BOMBS = """
import resource, sys
from api_client.errors import DecodeError
from tests.support.payloads import read_payload

frames = [bytes.fromhex(line) for line in sys.stdin.read().split()]
assert read_payload(frames.pop(0), is_compressed=True, query="q", max_bytes=2**20) == 7
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for frame in frames:
    try:
        read_payload(frame, is_compressed=True, query="q", max_bytes=2**20)
        sys.exit("read a bomb")
    except DecodeError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_decompression_bomb_takes_no_more_memory_than_allowed_whatever_size_it_declares() -> None:
    real = bomb(256 * MIB)
    assert len(real) < 32 * KIB
    harmless = zstandard.ZstdCompressor().compress(payload.encode(7))
    frames = [harmless, real, lying(real, 100_000), lying(real, MIB), bomb(256 * MIB, declares_size=False)]
    done = subprocess.run(
        [sys.executable, "-c", READ_BOMBS],
        input="\n".join(frame.hex() for frame in frames),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown = int(done.stdout) * (1 if sys.platform == "darwin" else KIB)
    assert grown < 8 * MIB


def test_each_thread_has_a_codec_of_its_own() -> None:
    codecs: list[object] = []
    threads = [threading.Thread(target=lambda: codecs.append(compression.thread_codec())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(codec) for codec in [*codecs, compression.thread_codec()]}) == 3
    assert compression.thread_codec() is compression.thread_codec()


LOADED = """
import sys
import api_client, refresher.flow.refresh
from api_client.protocol import payload as compression
from tests.support.payloads import read_payload
assert read_payload(compression.pack(compression.Packed(b"\\x07"), 0).content, query="q", max_bytes=9) == 7
before = "zstandard" in sys.modules
frame = compression.pack(compression.Packed(b"\\xd9\\xff" + bytes(255)), 1).content
read_payload(frame, is_compressed=True, query="q", max_bytes=999)
print(before, "zstandard" in sys.modules)
"""


def test_zstandard_is_imported_at_the_first_compressed_payload() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
