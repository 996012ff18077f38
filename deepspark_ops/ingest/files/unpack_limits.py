"""Limits on unpacked sizes of compressed source files: a packed megabyte of zeros may fill memory or a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class UnpackLimits:
    """Sizes after unpacking.

    Attributes:
        member_mib: Limit of a file in a zip; the file is unpacked into memory.
        unpacked_gib: Limit of a compressed tar or file; the content is unpacked to the disk.
    """

    member_mib: int = 256
    unpacked_gib: int = 64


_limits: ContextVar[UnpackLimits] = ContextVar("unpack_limits", default=UnpackLimits())  # noqa: B039 - frozen


@contextmanager
def unpack_limits(limits: UnpackLimits) -> Iterator[None]:
    """Use ``limits`` inside the block."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def current_limits() -> UnpackLimits:
    """Return the limits of the block around the caller."""
    return _limits.get()
