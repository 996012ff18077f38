"""Sizes and shares as text, for messages and pages; ``config.base.MemorySize`` parses the texts of sizes."""

from __future__ import annotations

_STEP = 1024


def size_text(n_bytes: float) -> str:
    """Return a size with one decimal, in the largest unit up to the size.

    Example:
        >>> size_text(7), size_text(1_536), size_text(2**20 - 1), size_text(3 * 2**30)
        ('7 B', '1.5 KiB', '1.0 MiB', '3.0 GiB')
    """
    if n_bytes < _STEP:
        return f"{n_bytes:.0f} B"
    value, units = float(n_bytes), ["KiB", "MiB", "GiB", "TiB"]
    while len(units) > 1 and round(value / _STEP, 1) >= _STEP:
        value /= _STEP
        units.pop(0)
    return f"{value / _STEP:,.1f} {units[0]}"


def share_text(share: float | None, digits: int = 1) -> str:
    """Return a share of 1 in percent; within 0.5 % of none or all, one digit more. A dash for None.

    Example:
        >>> share_text(0.98611), share_text(1.0), share_text(0.9997), share_text(0.425, 0), share_text(None)
        ('98.6 %', '100.0 %', '99.97 %', '42 %', '\u2013')
    """
    if share is None:
        return "\u2013"
    is_near_end = 0.0 < share < 0.005 or 0.995 < share < 1.0
    return f"{100 * share:.{digits + is_near_end}f} %"
