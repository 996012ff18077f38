"""Recorded cases of Caffe that have passed on this host: the same code computes no case twice.

The file is below the host's folder of temporary files, for this user alone. Another TensorFlow, another version of our
code, another processor or another setting of TensorFlow computes all cases anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

import caffe_import
from caffe_import.file_access.regular_file import regular_bytes, regular_text
from caffe_import.parity.case import Case
from deepspark_ops.run_paths import write_text_whole

FORMAT_VERSION: Final = 1
_SETTINGS: Final = ("TF_", "ONEDNN_", "DNNL_", "XLA_", "OMP_", "KMP_", "MKL_", "LD_")
"""Beginnings of the environment variables that TensorFlow, its kernels and the loader of libraries read."""
_PROCESSOR: Final = ("model name", "flags", "CPU part", "Features")
"""Beginnings of the lines of /proc/cpuinfo that decide about kernels."""


class PassedCases:
    """A file with the largest errors of passed cases. Without a folder of this user alone no case is kept."""

    def __init__(self, tensorflow: str, environment: Mapping[str, str]) -> None:
        """Take the installed TensorFlow, and the environment of the comparison."""
        self._tensorflow = tensorflow
        self._environment = environment
        self._path = Path(tempfile.gettempdir()) / f"deepspark-parity-{os.getuid()}" / "passed.json"

    def errors(self, cases: Sequence[Case]) -> dict[str, float]:
        """Return name -> largest error of those cases that have passed before."""
        passed = self._read()
        digests = {case.name: _digest_of_case(case) for case in cases} if passed else {}
        return {name: passed[digest] for name, digest in digests.items() if digest in passed}

    def add(self, cases: Sequence[Case], errors: Mapping[str, float]) -> None:
        """Add those cases that ``errors`` names; a full disk or another user's folder adds none."""
        passed = {**self._read(), **{_digest_of_case(case): errors[case.name] for case in cases if case.name in errors}}
        content = {"format_version": FORMAT_VERSION, "computed_by": self._computed_by, "passed": passed}
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            if self._is_private():
                write_text_whole(self._path, json.dumps(content) + "\n")

    def _read(self) -> dict[str, float]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(regular_text(self._path)) if self._is_private() else {}
            if (content["format_version"], content["computed_by"]) == (FORMAT_VERSION, self._computed_by):
                return {digest: float(error) for digest, error in dict(content["passed"]).items()}
        return {}

    def _is_private(self) -> bool:
        status = self._path.parent.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022

    @cached_property
    def _computed_by(self) -> str:
        """Digest of everything beside a case that decides about the case's numbers."""
        settings = sorted(item for item in self._environment.items() if _decides(item[0]))
        host = [platform.node(), *_processor()]
        digest = hashlib.sha256(json.dumps([self._tensorflow, platform.python_version(), host, settings]).encode())
        package = Path(caffe_import.__file__).parent
        for path in sorted(package.rglob("*.py")):
            digest.update(f"\n{path.relative_to(package)}\n".encode() + regular_bytes(path))
        return digest.hexdigest()


def _decides(variable: str) -> bool:
    return variable.startswith(_SETTINGS) and not variable.startswith("TF_CPP_")  # of TensorFlow's log


def _processor() -> Iterator[str]:
    """Yield model and instruction sets of the processor; on other systems than Linux the platform's name."""
    yield platform.processor() or platform.machine()
    with suppress(OSError):
        lines = regular_text("/proc/cpuinfo", errors="replace").splitlines()
        yield from sorted({line for line in lines if line.startswith(_PROCESSOR)})


def _digest_of_case(case: Case) -> str:
    """Return the digest of a case's entry in the index and of the case's files."""
    digest = hashlib.sha256(json.dumps(case.record, sort_keys=True).encode())
    for name in case.record["files"]:
        digest.update(f"\n{name}\n".encode())
        with suppress(OSError):  # a case without its files does not pass
            digest.update(regular_bytes(case.folder / name))
    return digest.hexdigest()
