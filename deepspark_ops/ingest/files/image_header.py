"""What an image file's header says that decoding it to 8 bits a channel loses. Microseconds; nothing is decoded."""

from __future__ import annotations

import re
import struct

_PNG = b"\x89PNG\r\n\x1a\n"
_PNM_MAXIMUM = re.compile(rb"P[56](?:\s|#[^\n]*\n)+\d+\s+\d+\s+(\d+)")
_PNG_HAS_ALPHA = (4, 6)
_HEADER_BYTES = 4096
_ORIENTATION, _BITS, _COLOURS, _SAMPLES = 274, 258, 262, 277
"""TIFF tags; 0 and 1 are gray, 2 is RGB."""
_SHORT, _SHORT_BYTES = 3, 2
_TIFF = {b"II*\0": "<", b"MM\0*": ">"}


def more_than_8_bits(record: bytes) -> int:
    """Return the bits a channel if they are more than 8, else 0; of PNG, TIFF and PNM, the kinds that have them."""
    bits = 0
    if record.startswith(_PNG):
        bits = record[24] if len(record) > 24 else 0
    elif record[:4] in _TIFF:
        bits = _tiff_tag(record, _BITS) or 0
    elif record[:2] in (b"P5", b"P6") and (
        found := re.match(rb"P[56](?:\s|#[^\n]*\n)+\d+\s+\d+\s+(\d+)", record[:200])
    ):
        bits = int(found[1]).bit_length()
    return bits if bits > 8 else 0


def has_alpha(record: bytes) -> bool:
    """Return whether an image has transparency: PNG, WebP and TIFF."""
    if record.startswith(_PNG):
        return len(record) > 25 and (record[25] in _PNG_HAS_ALPHA or b"tRNS" in record[33:_HEADER_BYTES])
    if record[:4] == b"RIFF" and record[8:12] == b"WEBP" and len(record) > 24:
        return {b"VP8X": bool(record[20] & 0x10), b"VP8L": bool(record[24] & 0x10)}.get(record[12:16], False)
    # Not every writer says what a further sample is for, OpenCV does not.
    return (_tiff_tag(record, _SAMPLES), _tiff_tag(record, _COLOURS)) in ((2, 0), (2, 1), (4, 2))


def exif_orientation(record: bytes) -> int:
    """Return 2 to 8 if EXIF data say that the image is to be turned or mirrored, else 1; of JPEG."""
    if record[:2] != b"\xff\xd8":
        return 1
    at = record.find(b"Exif\0\0", 0, _HEADER_BYTES)
    found = _tiff_tag(record[at + 6 : at + 65_536], _ORIENTATION) if at >= 0 else None
    return found if found in range(1, 9) and found is not None else 1


def _tiff_tag(tiff: bytes, tag: int) -> int | None:
    """Return the first value of a short in the first directory of a TIFF; None if there is none."""
    order = _TIFF.get(tiff[:4])
    if order is None:
        return None
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (n_entries,) = struct.unpack_from(f"{order}H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * n_entries, 12):
            found, kind, count = struct.unpack_from(f"{order}HHI", tiff, entry)
            if found == tag and kind == _SHORT:
                is_inside = count * _SHORT_BYTES <= 4
                place = entry + 8 if is_inside else struct.unpack_from(f"{order}I", tiff, entry + 8)[0]
                (value,) = struct.unpack_from(f"{order}H", tiff, place)
                return int(value)
    except struct.error:
        return None
    return None


def picture_size(record: bytes) -> tuple[int, int] | None:
    """Return rows and columns as stored, of JPEG, PNG, BMP and GIF; None of others."""
    try:
        if record.startswith(_PNG):
            width, height = struct.unpack_from(">II", record, 16)
        elif record[:2] == b"\xff\xd8":
            return _jpeg_size(record)
        elif record[:2] == b"BM":
            width, height = struct.unpack_from("<ii", record, 18)
        elif record[:4] == b"GIF8":
            width, height = struct.unpack_from("<HH", record, 6)
        else:
            return None
    except struct.error:
        return None
    return abs(height), width


def _jpeg_size(record: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(record) and record[at] == 0xFF:
        marker = record[at + 1]
        if marker in range(0xC0, 0xD0) and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", record, at + 5)
            return height, width
        if marker == 0xFF:  # fills up
            at += 1
        elif marker in range(0xD0, 0xD8) or marker == 0x01:
            at += 2
        else:
            at += 2 + int.from_bytes(record[at + 2 : at + 4], "big")
    return None
