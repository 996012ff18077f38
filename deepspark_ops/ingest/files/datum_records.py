"""What Caffe's databases hold: records of Datum under numbered keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

from caffe_import.files.datum import Image, decode_datum, parse_datum

_NUMBER = re.compile(r"^\d{8}_")


def image_of_datum(record: bytes | memoryview, *, where: str) -> Image | bytes:
    """Return a record's image; a compressed one stays compressed.

    Args:
        record: A Datum.
        where: Begins the error.

    Raises:
        DataSourceError: The record is no Datum, or a damaged one.
    """
    datum = parse_datum(record, where=where)
    return datum.data if datum.encoded else decode_datum(record, where=where)[0]


def names_of_keys(keys: Iterable[bytes]) -> list[str]:
    """Return the records' names: convert_imageset numbers its keys; the shards number them anew.

    Example:
        >>> names_of_keys([b"00000012_cat/1.jpg", b"dog"])
        ['cat/1.jpg', 'dog']
    """
    return [_NUMBER.sub("", key.decode("utf-8", "surrogateescape")) for key in keys]
