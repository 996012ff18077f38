"""Start-up lines of every TensorFlow process, and a start without the lines.

The lines come from C++ before TensorFlow reads ``TF_CPP_MIN_LOG_LEVEL``. TensorFlow itself is not imported here.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

START_LINES: Final = (
    r"WARNING: All log messages before absl::InitializeLog"
    r"|I0000 00:00:"  # absl's own lines of level INFO, whatever TensorFlow's level is
    r"|.*oneDNN custom operations are on"
    r"|.*This TensorFlow binary is optimized to use available CPU instructions"
    r"|To enable the following instructions:"
    r"|.*oneDNN supports DT_\w+ only on platforms with"
    r"|.*failed call to cuInit|.*Could not find cuda drivers|.*cuda_executor\.cc"
)
"""Regular expression for the beginning of such a line. A machine without a GPU is no mistake."""

_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"


@contextmanager
def start_lines_dropped() -> Iterator[None]:
    """Have the block, which imports TensorFlow and asks for its devices, write nothing but what is no start-up line.

    Standard error (file descriptor 2) is a temporary file meanwhile; at the end the other lines are written. Lines that
    TensorFlow's C++ part writes later do not come either: what ends a computation is an exception. A user who sets
    TF_CPP_MIN_LOG_LEVEL sees all lines of the level. Not thread-safe: for the beginning of a process.
    """
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = "3"
    sys.stderr.flush()
    with tempfile.TemporaryFile() as stderr_file:
        stderr = os.dup(2)
        os.dup2(stderr_file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            stderr_file.seek(0)
            lines = stderr_file.read().decode("utf-8", "replace").splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if not re.match(START_LINES, line)))
            sys.stderr.flush()
