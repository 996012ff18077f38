"""Header of an image file: size, loss by decoding to 8 bits a channel, memory for decoding.

No image is decoded. A header takes 2.5 us here, 57 us in Pillow; decoding a JPEG of 32x32 takes 83 us.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

_PNG = b"\x89PNG\r\n\x1a\n"
_PNM = re.compile(rb"P[56](?:\s|#[^\n]*\n)+(\d+)\s+(\d+)\s+(\d+)")
_PNG_HAS_ALPHA = (4, 6)
_EXIF = b"Exif\0\0"
_HEADER_BYTES = 4096
_WIDTH, _HEIGHT, _ORIENTATION, _BITS, _COLOURS, _SAMPLES = 256, 257, 274, 258, 262, 277
"""TIFF tags; 0 and 1 are gray, 2 is RGB."""
_VALUES = {3: "H", 4: "I"}
"""Supported kinds of values in tags of a TIFF: short and long."""
_TURNED = range(2, 9)
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_COEFFICIENT_BYTES = 2
_GIF_BYTES = 8
"""Per pixel: the drawn picture and the returned picture, with transparency."""
_TABLES_AND_DATA = frozenset({0xC4, 0xC8, 0xCC, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE})
"""JPEG markers of segments with a length that may stand before the frame."""
_EXIF_OR_XMP = 0xE1
_TIFF = {b"II*\0": "<", b"MM\0*": ">"}
_QUANTIZATION, _HUFFMAN = rb"\xff\xdb\x00\x43.{65}", rb"\xff\xc4\x00\x1f.{29}\xff\xc4\x00\xb5.{179}"
_USUAL_JPEG = re.compile(
    rb"\xff\xd8(?:\xff\xe0\x00\x10.{14})?" + _QUANTIZATION + rb"(?:" + _QUANTIZATION + rb")?"
    rb"\xff\xc0\x00[\x0b\x11]\x08(.{4}[\x01\x03])(?:.{3}|.{9})" + _HUFFMAN + rb"(?:" + _HUFFMAN + rb")?\xff\xda",
    re.DOTALL,
)
"""Segments up to the pixels of a JPEG of libjpeg without options."""


class StoredPicture(NamedTuple):
    """Shape of a picture that OpenCV decodes with default flags.

    Attributes:
        shape: (rows, columns) of a gray picture, (rows, columns, 3) of a colour picture; 8 bits a channel.
        is_upright: No EXIF data ask for a turn.
    """

    shape: tuple[int, ...]
    is_upright: bool


def usual_frame(record: bytes) -> bytes | None:
    """Return rows, columns (two bytes each) and components of a JPEG of the most usual form; None of other forms.

    The usual form is baseline, 8 bits, a single scan, no EXIF data. The pattern takes a fifth of the time of a walk
    through the segments.
    """
    match = _USUAL_JPEG.match(record)
    return None if match is None else match[1]


def stored_picture(record: bytes) -> StoredPicture | None:
    """Return the shape of an 8-bit JPEG or PNG, gray or colour without transparency; None of other images."""
    if (usual := usual_frame(record)) is not None:
        rows, columns, components = _FRAME.unpack(usual)
        if not rows * columns:
            return None
        return StoredPicture((rows, columns, 3) if components == 3 else (rows, columns), is_upright=True)
    if record[:2] == b"\xff\xd8":
        return _stored_jpeg(record)
    if record.startswith(_PNG) and len(record) > 33:
        width, height, bits, kind = struct.unpack_from(">IIBB", record, 16)
        if bits == 8 and kind in (0, 2) and not has_alpha(record) and b"tRNS" not in record:
            return StoredPicture((height, width, 3) if kind else (height, width), b"eXIf" not in record)
    return None


_FRAME = struct.Struct(">HHB")


class _JpegFrame(NamedTuple):
    """Header of a JPEG's first frame; ``has_exif`` also counts XMP data before the frame.

    Attributes:
        sampling: Of each component, how many samples across and down stand for the same pixels.
    """

    bits: int
    rows: int
    columns: int
    components: int
    has_exif: bool
    is_progressive: bool
    sampling: tuple[tuple[int, int], ...]


def _stored_jpeg(record: bytes) -> StoredPicture | None:
    frame = _jpeg_frame(record)
    if frame is None or frame.bits != 8 or frame.components not in (1, 3) or not frame.rows * frame.columns:
        return None
    size = (frame.rows, frame.columns)
    is_upright = not frame.has_exif or exif_orientation(record) == 1
    return StoredPicture((*size, 3) if frame.components == 3 else size, is_upright)


def _jpeg_frame(record: bytes) -> _JpegFrame | None:
    """Return the first frame's header and skip segments before the frame, such as a thumbnail."""
    at, last, has_exif = 2, len(record) - 10, False
    while at <= last and record[at] == 0xFF:
        marker = record[at + 1]
        if marker in _TABLES_AND_DATA:
            has_exif = has_exif or marker == _EXIF_OR_XMP
            at += 2 + (record[at + 2] << 8 | record[at + 3])
        elif 0xC0 <= marker <= 0xCF:
            bits, rows, columns, components = struct.unpack_from(">BHHB", record, at + 4)
            factors = record[at + 11 : at + 10 + 3 * components : 3]
            sampling = tuple((max(1, both >> 4), max(1, both & 15)) for both in factors) or ((1, 1),)
            return _JpegFrame(bits, rows, columns, components, has_exif, marker in _PROGRESSIVE, sampling)
        elif marker == 0xFF:  # fills up
            at += 1
        else:
            return None
    return None


def more_than_8_bits(record: bytes) -> int:
    """Return the bits a channel of a PNG, TIFF or PNM with more than 8 bits, else 0."""
    bits = 0
    if record.startswith(_PNG):
        bits = record[24] if len(record) > 24 else 0
    elif record[:4] in _TIFF:
        bits = _tiff_tag(record, _BITS) or 0
    elif record[:2] in (b"P5", b"P6") and (match := _PNM.match(record[:200])):
        bits = int(match[3]).bit_length()
    return bits if bits > 8 else 0


def has_alpha(record: bytes) -> bool:
    """Return whether an image has transparency: PNG, WebP and TIFF."""
    if record.startswith(_PNG):
        return len(record) > 25 and (record[25] in _PNG_HAS_ALPHA or b"tRNS" in record[33:_HEADER_BYTES])
    if record[:4] == b"RIFF" and record[8:12] == b"WEBP" and len(record) > 24:
        return {b"VP8X": bool(record[20] & 0x10), b"VP8L": bool(record[24] & 0x10)}.get(record[12:16], False)
    # Not every writer declares the purpose of a further sample; OpenCV does not.
    return (_tiff_tag(record, _SAMPLES), _tiff_tag(record, _COLOURS)) in ((2, 0), (2, 1), (4, 2))


def exif_orientation(record: bytes) -> int:
    """Return the EXIF orientation of a JPEG: 2 to 8 for a turned or mirrored image, else 1."""
    if record[:2] != b"\xff\xd8":
        return 1
    at = record.find(_EXIF, 0, _HEADER_BYTES)
    orientation = _tiff_tag(record[at + 6 : at + 65_536], _ORIENTATION) if at >= 0 else None
    return orientation if orientation in range(1, 9) and orientation is not None else 1


def _tiff_tag(tiff: bytes, tag: int) -> int | None:
    """Return the first value of a short or long tag in the first directory of a TIFF; None of a missing tag."""
    order = _TIFF.get(tiff[:4])
    if order is None:
        return None
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (n_entries,) = struct.unpack_from(f"{order}H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * n_entries, 12):
            entry_tag, kind, count = struct.unpack_from(f"{order}HHI", tiff, entry)
            if entry_tag == tag and kind in _VALUES:
                form = order + _VALUES[kind]
                is_inside = count * struct.calcsize(form) <= 4
                offset = entry + 8 if is_inside else struct.unpack_from(f"{order}I", tiff, entry + 8)[0]
                (value,) = struct.unpack_from(form, tiff, offset)
                return int(value)
    except struct.error:
        return None
    return None


def picture_size(record: bytes) -> tuple[int, int] | None:
    """Return the stored rows and columns of a JPEG, PNG, BMP, GIF, WebP, TIFF or PNM; None of other formats."""
    try:
        if record.startswith(_PNG):
            width, height = struct.unpack_from(">II", record, 16)
        elif (usual := usual_frame(record)) is not None:
            height, width, _ = _FRAME.unpack(usual)
        elif record[:2] == b"\xff\xd8":
            frame = _jpeg_frame(record)
            return None if frame is None else (frame.rows, frame.columns)
        elif record[:2] == b"BM":
            width, height = struct.unpack_from("<ii", record, 18)
        elif record[:4] == b"GIF8":
            width, height = struct.unpack_from("<HH", record, 6)
        elif record[:4] == b"RIFF" and record[8:12] == b"WEBP":
            return _webp_size(record)
        elif record[:4] in _TIFF:
            rows, columns = _tiff_tag(record, _HEIGHT), _tiff_tag(record, _WIDTH)
            return None if rows is None or columns is None else (rows, columns)
        elif match := _PNM.match(record[:200]):
            return int(match[2]), int(match[1])
        else:
            return None
    except struct.error:
        return None
    return abs(height), width


_WEBP_HEADER_BYTES = 30


def _webp_size(record: bytes) -> tuple[int, int] | None:
    """Return rows and columns. Source: RFC 9649, sections 2.7 (VP8X), 3.4 (VP8L) and RFC 6386, section 9.1 (VP8)."""
    kind = record[12:16]
    if len(record) < _WEBP_HEADER_BYTES:
        return None
    if kind == b"VP8X":
        columns, rows = (int.from_bytes(record[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        (packed,) = struct.unpack_from("<I", record, 21)
        columns, rows = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        columns, rows = (extent & 0x3FFF for extent in struct.unpack_from("<HH", record, 26))
    else:
        return None
    return rows, columns


def bytes_to_decode(record: bytes, *, gray: bool, divisor: int = 1) -> int | None:
    """Return about the most bytes that OpenCV needs to decode a file, without the file's bytes; None of unknown forms.

    Measured with OpenCV 4.14 (``benchmarks/ingest.py``): the picture; a second picture for a turn; all coefficients of
    a progressive JPEG; a second copy of a TIFF file.

    Args:
        record: A file's bytes.
        gray: The picture is decoded as gray.
        divisor: Height and width of a decoded JPEG are divided by ``divisor``.
    """
    size = picture_size(record)
    if size is None:
        return None
    n_pixels = size[0] * size[1]
    picture = n_pixels * (1 if gray else 4 if has_alpha(record) else 3)
    if record[:2] == b"\xff\xd8":
        turned = 2 if exif_orientation(record) in _TURNED else 1
        return turned * picture // divisor**2 + _coefficient_bytes(record)
    if record[:4] == b"GIF8":
        return n_pixels * _GIF_BYTES
    return picture + (len(record) if record[:4] in _TIFF else 0)


def _coefficient_bytes(record: bytes) -> int:
    """Return the bytes of a progressive JPEG's coefficients, which libjpeg keeps; 0 of other files, decoded by rows."""
    frame = None if usual_frame(record) is not None else _jpeg_frame(record)
    if frame is None or not frame.is_progressive:
        return 0
    largest_across = max(across for across, _ in frame.sampling)
    largest_down = max(down for _, down in frame.sampling)
    share = sum(across * down for across, down in frame.sampling) / (largest_across * largest_down)
    return int(frame.rows * frame.columns * share * _COEFFICIENT_BYTES)
