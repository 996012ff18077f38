"""One finding of ``deepspark doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """What was looked at and how it stands.

    Attributes:
        name: In a few words.
        ok: False where a run would fail.
        detail: What was found.
        remedy: What to do; of one that is ok a warning, empty where nothing is to be done.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether a run goes well, and something could be better."""
        return self.ok and bool(self.remedy)


def failed(name: str, message: str, *, otherwise: str = "correct this") -> Check:
    """Return the check of something that was refused; our messages say finding and remedy in one.

    Args:
        name: Of the check.
        message: Of the error.
        otherwise: The remedy of a message that names none.

    Example:
        >>> failed("java", "no Java found by PATH; install it")
        Check(name='java', ok=False, detail='no Java found by PATH', remedy='install it')
    """
    detail, _, remedy = message.partition("; ")
    return Check(name, False, detail, remedy or otherwise)


def to_plain(checks: list[Check]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {"checks": [asdict(check) for check in checks]}
