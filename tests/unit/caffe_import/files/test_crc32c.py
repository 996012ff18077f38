"""The checksum against the vectors of RFC 3720 and against its definition, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.crc32c import crc32c, masked_crc32c
from tests.reference.slow_crc import slow_crc32c


def test_rfc_3720_vectors() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 507, 508, 509, 512, 1019, 1020, 1021])
def test_every_length_around_a_row(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    assert crc32c(data) == slow_crc32c(data)


def test_mask_turns_and_adds() -> None:
    crc = crc32c(b"123456789")
    assert masked_crc32c(b"123456789") == ((crc // 2**15 + crc % 2**15 * 2**17) + 0xA282EAD8) % 2**32
