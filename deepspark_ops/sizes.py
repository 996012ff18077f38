"""Numbers of bytes as text, for messages and pages; ``config.base.MemorySize`` parses such texts."""

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
