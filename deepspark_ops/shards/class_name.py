"""Name of a class for people: in figures, reports, pages and the answers of a server."""

from __future__ import annotations

from collections.abc import Sequence


def class_name(names: Sequence[str], label: int) -> str:
    """Return the name of a class; the class's number as text where the name is unknown.

    Args:
        names: In label order; may be shorter than the number of classes.
        label: The class's number, from 0.

    Example:
        >>> class_name(("cat", "dog"), 1), class_name((), 7)
        ('dog', '7')
    """
    return names[label] if 0 <= label < len(names) else str(label)
