"""Small pictures of samples in one file, so that a page shows them without opening shards.

Format version 1: a zip file without compression that holds ``<number>.png`` or ``<number>.jpg``; its comment is JSON
with ``format_version`` and ``made_of``, which says what the pictures are of.
"""

from __future__ import annotations

import json
import zipfile
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.run_paths import write_whole
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

ARCHIVE_VERSION: Final = 1
MOST_BYTES: Final = 100_000
"""A larger entry is none of ours and is not read."""
_SUFFIXES: Final = {"image/png": ".png", "image/jpeg": ".jpg"}
_BEGINNING: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class EncodedPicture:
    """A picture as a browser takes it.

    Attributes:
        media_type: ``image/png`` or ``image/jpeg``.
        content: The file's bytes.
    """

    media_type: str
    content: bytes

    def data_uri(self) -> str:
        """Return the picture as a ``data:`` address."""
        return f"data:{self.media_type};base64,{b64encode(self.content).decode('ascii')}"


def write_pictures(path: DataPath, pictures: Mapping[int, EncodedPicture], made_of: str) -> None:
    """Write the file whole; equal pictures give equal bytes.

    Raises:
        OSError: It cannot be written.
    """
    comment = json.dumps({"format_version": ARCHIVE_VERSION, "made_of": made_of})
    with write_whole(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for number, picture in sorted(pictures.items()):
            name = f"{number}{_SUFFIXES[picture.media_type]}"
            archive.writestr(zipfile.ZipInfo(name, _BEGINNING), picture.content)
        archive.comment = comment.encode("ascii")


class PictureArchive:
    """The file as it was when it was opened; empty without one, or with one that is damaged or of something else.

    One thread at a time.

    Attributes:
        numbers: Of the pictures that it has.
    """

    def __init__(self, path: DataPath, made_of: str) -> None:
        """Read what there is, without the pictures themselves; ``made_of`` is what they must be of."""
        self._path = path
        self._names: dict[int, str] = {}
        try:
            with local_copy(path) as local, zipfile.ZipFile(regular_path(local)) as archive:
                head = json.loads(archive.comment)
                if head == {"format_version": ARCHIVE_VERSION, "made_of": made_of}:
                    self._names = {
                        int(Path(entry.filename).stem): entry.filename
                        for entry in archive.infolist()
                        if entry.file_size <= MOST_BYTES and entry.compress_type == zipfile.ZIP_STORED
                    }
        except (OSError, ValueError, zipfile.BadZipFile):
            self._names = {}
        self.numbers: Collection[int] = self._names.keys()

    def read(self, numbers: Collection[int]) -> dict[int, EncodedPicture]:
        """Return those of the pictures that are there."""
        media_types = {suffix: media_type for media_type, suffix in _SUFFIXES.items()}
        names = {number: self._names[number] for number in numbers if number in self._names}
        if not names:
            return {}
        try:
            with local_copy(self._path) as local, zipfile.ZipFile(regular_path(local)) as archive:
                return {
                    number: EncodedPicture(media_types[Path(name).suffix], archive.read(name))
                    for number, name in names.items()
                }
        except (OSError, KeyError, zipfile.BadZipFile):
            return {}
