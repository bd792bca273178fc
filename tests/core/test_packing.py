"""Packed data of unknown origin: read within a bound of their size, whole or what is left of them."""

import gzip
import time
import zlib

import pytest

from phasepoint.core.packing import (
    FREE_BYTES,
    MOST_RATIO,
    PackedTooFar,
    is_packed,
    most_unpacked,
    unpack_gzip,
    unpack_zstd,
)
from phasepoint.hlo.module import pack_hlo

TEXT = b"".join(b"%d," % i for i in range(100_000))


def test_members_one_after_another_are_one_content():
    packed = gzip.compress(TEXT) + gzip.compress(b"more")
    assert is_packed(packed)
    assert unpack_gzip(packed) == (TEXT + b"more", None)


def test_what_follows_the_members_is_passed_over():
    assert unpack_gzip(gzip.compress(TEXT) + bytes(512)) == (TEXT, None)


@pytest.mark.parametrize("kept", [2, 10, 1000, -1])
def test_a_truncated_member_gives_what_comes_before(kept):
    content, problem = unpack_gzip(gzip.compress(TEXT)[:kept])
    assert TEXT.startswith(content)
    assert problem == "the gzip data is cut off"


def test_damage_is_told_with_what_comes_before():
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    content, problem = unpack_gzip(bytes(packed))
    assert TEXT.startswith(content[:1000])
    assert problem is not None


def test_the_beginning_is_unpacked_however_far_the_rest_goes():
    packed = gzip.compress(TEXT) + gzip.compress(bytes(200 << 20), 1)
    assert unpack_gzip(packed, stop_at=10) == (TEXT[:10], None)
    assert unpack_gzip(packed, stop_at=len(TEXT) + 3) == (TEXT + bytes(3), None)


def test_members_by_the_hundred_thousand_are_read_at_once():
    packed = gzip.compress(b"") * 200_000 + gzip.compress(b"end")
    began = time.process_time()
    assert unpack_gzip(packed) == (b"end", None)
    assert time.process_time() - began < 5


def test_a_bomb_is_refused_before_it_is_unpacked():
    machine = zlib.compressobj(9, wbits=31)
    packed = b"".join(machine.compress(bytes(1 << 20)) for _ in range(200)) + machine.flush()
    with pytest.raises(PackedTooFar, match=r"unpack to more than .*40 times as much .* unpack it first"):
        unpack_gzip(packed)
    with pytest.raises(PackedTooFar):
        unpack_zstd(pack_hlo(bytes(200 << 20)))


def test_small_data_may_unpack_far():
    packed = gzip.compress(bytes(FREE_BYTES))
    assert most_unpacked(len(packed)) == FREE_BYTES + MOST_RATIO * len(packed)
    assert len(unpack_gzip(packed)[0]) == FREE_BYTES
