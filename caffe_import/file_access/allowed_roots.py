"""Files that a net, a solver or a list may name: files below a few folders, wherever links lead.

A net is often somebody else's, and the program reads the named files with the rights of the user. The process sets the
folders once (``use_allowed_roots``); every reader of a path from a net, a solver or a list asks
``check_named_path`` before opening the file. A library without this call reads everything, as Caffe does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from caffe_import.errors import ForbiddenPathError

_log = logging.getLogger(__name__)
_KNOWN_FOLDERS = 4096


def _log_warning(finding: str) -> None:
    _log.warning("%s", finding)


@dataclass(frozen=True)
class AllowedRoots:
    """Folders whose files may be named.

    Attributes:
        folders: Absolute; symbolic links in them are followed once, in ``of``.
        scratch: A further folder, of the process' own, that no message names; empty for none.
        is_enforced: Refuse a file outside of them, else warn of it.
        remedy: What to do about a file that is refused, for the message.
        warn: Is told of a file outside of the folders that is read all the same.
    """

    folders: tuple[str, ...]
    is_enforced: bool = True
    scratch: str = ""
    remedy: str = "move it there, or allow its folder"
    warn: Callable[[str], None] = field(default=_log_warning, compare=False, repr=False)
    _warned: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def of(cls, folders: Iterable[Path], *, scratch: Path | None = None, **fields: Any) -> AllowedRoots:
        """Return the roots with their symbolic links followed, each once; ``fields`` are the other attributes."""
        real = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        return cls(real, scratch="" if scratch is None else os.path.realpath(scratch), **fields)

    def holds(self, path: str | Path) -> bool:
        """Return whether the file, symbolic links and ``..`` followed, lies below a root; it need not exist."""
        if "\0" in str(path):
            return False
        real = _real_path(os.path.realpath(path) if ".." in Path(path).parts else os.path.abspath(path))
        roots = (*self.folders, *filter(None, [self.scratch]))
        return any(real == root or real.startswith(f"{root.rstrip(os.sep)}{os.sep}") for root in roots)

    def check(self, path: str | Path, *, named_by: str, is_quoted: bool = True) -> None:
        """Refuse a file outside of the roots, or warn of it, of each folder once.

        Args:
            path: As it would be opened; relative to the working directory.
            named_by: What names it, for the message: ``solver.prototxt: net``.
            is_quoted: Whether the message may show the path.

        Raises:
            ForbiddenPathError: It lies outside, and the roots are enforced.
        """
        if self.holds(path):
            return
        real = os.path.realpath(str(path).replace("\0", ""))
        shown = str(path) if str(path) == real else f"{path} ({real})"
        shown = shown.encode("utf-8", "backslashreplace").decode()  # a list may name files in bytes that are no text
        shown = shown if is_quoted else "a file (not shown)"
        finding = f"{named_by} names {shown}, outside of the allowed folders {', '.join(self.folders) or '(none)'}"
        if self.is_enforced:
            msg = f"{finding}: it is not read; {self.remedy}"
            raise ForbiddenPathError(msg)
        folder = os.path.dirname(real)
        if folder not in self._warned:
            self._warned.add(folder)
            self.warn(finding)

    def check_listed(self, folder: str, names: Iterable[str], *, named_by: str) -> None:
        """Call ``check`` for the files of a long list.

        Roots without enforcement check only the first file of each folder, so a million names take little time.
        A link of a single file to another folder is then not reported.

        Args:
            folder: What relative names start from.
            names: Of the files.
            named_by: The list.

        Raises:
            ForbiddenPathError: One lies outside, and the roots are enforced.
        """
        is_inside: dict[str, bool] = {}
        for name in names:
            below, _, last = name.rpartition("/")
            path = os.path.join(folder, name)
            if below not in is_inside:
                is_inside[below] = self.holds(os.path.dirname(path))
            elif not self.is_enforced:
                continue
            # What lies in a folder that is inside is inside, unless it is a link.
            if not is_inside[below] or last == ".." or os.path.islink(path):
                self.check(path, named_by=named_by)


def _real_path(path: str) -> str:
    """Return ``os.path.realpath`` of an absolute path with a single look at the disk in a known folder."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(_real_folder(folder), name)


@lru_cache(maxsize=_KNOWN_FOLDERS)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


_roots: AllowedRoots | None = None


def use_allowed_roots(roots: AllowedRoots | None) -> None:
    """Let this process read named files from ``roots`` alone; None lifts the limit."""
    global _roots
    _roots = roots
    _real_folder.cache_clear()


@contextmanager
def allowed_roots_used(roots: AllowedRoots | None) -> Iterator[None]:
    """Use ``roots`` inside the block, for a process with a longer life than the roots."""
    outer_roots = _roots
    use_allowed_roots(roots)
    try:
        yield
    finally:
        use_allowed_roots(outer_roots)


def check_named_path(path: str | Path, *, named_by: str, is_quoted: bool = True) -> None:
    """Ask the process' roots about a file of a net, a solver or a list, before the file is opened.

    Args:
        path: As it would be opened.
        named_by: What names it, for the message.
        is_quoted: Whether the message may show the path, see ``may_quote``.

    Raises:
        ForbiddenPathError: It lies outside of the roots, and they are enforced.
    """
    if _roots is not None:
        _roots.check(path, named_by=named_by, is_quoted=is_quoted)


def check_listed_paths(folder: str, names: Iterable[str], *, named_by: str) -> None:
    """Ask the process' roots about the files of a list, see ``AllowedRoots.check_listed``.

    Raises:
        ForbiddenPathError: One lies outside of the roots, and they are enforced.
    """
    if _roots is not None:
        _roots.check_listed(folder, names, named_by=named_by)


def is_refused(path: str | Path) -> bool:
    """Return whether ``check_named_path`` would refuse the file."""
    return _roots is not None and _roots.is_enforced and not _roots.holds(path)


def may_quote(path: str | Path) -> bool:
    """Return whether an error may show words of the file: not of one outside of the process' roots."""
    return _roots is None or _roots.holds(path)
