"""LevelDB's files, written by hand from the description of their format: logs, tables, manifest."""

import struct
from pathlib import Path

import pyarrow

from caffe_import.files.crc32c import masked_crc32c

VALUE, DELETION = 1, 0


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def length_prefixed(value: bytes) -> bytes:
    return varint(len(value)) + value


def checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))


def log_file(*records: bytes, block: int = 32_768) -> bytes:
    """LevelDB's log format, records cut at block ends."""
    out = b""
    for record in records:
        first = True
        while True:
            n_free = block - len(out) % block
            if n_free < 7:
                out += bytes(n_free)
                n_free = block
            piece, record = record[: n_free - 7], record[n_free - 7 :]
            kind = (1 if not record else 2) if first else (4 if not record else 3)
            out += checksum(bytes([kind]) + piece) + struct.pack("<HB", len(piece), kind) + piece
            first = False
            if not record:
                break
    return out


def write_batch(sequence: int, *writes) -> bytes:
    out = struct.pack("<QI", sequence, len(writes))
    for kind, key, value in writes:
        out += bytes([kind]) + length_prefixed(key) + (length_prefixed(value) if kind == VALUE else b"")
    return out


def block(entries, *, snappy: bool) -> bytes:
    body, previous = b"", b""
    for key, value in entries:
        shared = 0
        while shared < min(len(key), len(previous)) and key[shared] == previous[shared]:
            shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        previous = key
    body += struct.pack("<II", 0, 1)
    if snappy:
        stored = pyarrow.compress(body, codec="snappy", asbytes=True) + b"\x01"
    else:
        stored = body + b"\x00"
    return stored + checksum(stored)


def table_file(entries, *, snappy: bool) -> bytes:
    data = block(
        [(key + struct.pack("<Q", seq << 8 | kind), value) for key, seq, kind, value in entries], snappy=snappy
    )
    last = entries[-1][0] + struct.pack("<Q", entries[-1][1] << 8 | entries[-1][2])
    index = block([(last, varint(0) + varint(len(data) - 5))], snappy=False)
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_database(folder: Path, *, tables=(), log=b"", deleted=()) -> Path:
    folder.mkdir()
    edit = varint(1) + length_prefixed(b"leveldb.BytewiseComparator") + varint(2) + varint(100)
    for number, content in tables:
        (folder / f"{number:06d}.ldb").write_bytes(content)
        edit += (
            varint(7)
            + varint(0)
            + varint(number)
            + varint(len(content))
            + length_prefixed(b"a" * 9)
            + length_prefixed(b"z" * 9)
        )
    for number in deleted:
        edit += varint(6) + varint(0) + varint(number)
    (folder / "MANIFEST-000001").write_bytes(log_file(edit))
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
    (folder / "000099.log").write_bytes(log_file(write_batch(1, (VALUE, b"old", b"x"))))  # before the live log
    (folder / "000100.log").write_bytes(log)
    return folder
