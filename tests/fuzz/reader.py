"""A fuzzed reader: name, valid inputs and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.ingest.records import RecordError

OWN_ERRORS = (CaffeImportError, DeepSparkError, RecordError)
"""What a reader may raise: one message for the user."""


@dataclass(frozen=True)
class Reader:
    """A reader of the project and its inputs.

    Attributes:
        name: How it is called on the command line.
        corpus: Makes the valid inputs in a folder of its own.
        read: Reads one input; the folder is empty before the first call and is kept between calls.
        words: What means something in the format.
        may_die: The library below it is known to kill the process on damaged files, and the project reads these in a
            process of its own first: a death is counted, but is no finding.
        source_format: The format of raw data (``--source-format``) that it reads; empty: none.
    """

    name: str
    corpus: Callable[[Path], Sequence[bytes]]
    read: Callable[[bytes, Path], object]
    words: Sequence[bytes] = ()
    may_die: str = ""
    source_format: str = ""


def file_reader(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path], object]:
    """Return a reader that writes its bytes to a file called ``name`` for ``read``."""

    def run(content: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return run
