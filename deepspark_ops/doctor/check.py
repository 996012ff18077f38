"""A finding of ``deepspark doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A check with its result.

    Attributes:
        name: Name in a few words.
        ok: False if a run would fail.
        detail: The finding.
        remedy: Remedy; a warning if the check is ok, empty without advice.
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
    """Return the failed check of an error; messages of our errors contain finding and remedy.

    Args:
        name: Name of the check.
        message: Message of the error.
        otherwise: Remedy for a message without a remedy.

    Example:
        >>> failed("java", "no Java found by PATH; install it")
        Check(name='java', ok=False, detail='no Java found by PATH', remedy='install it')
    """
    detail, _, remedy = message.partition("; ")
    return Check(name, False, detail, remedy or otherwise)


def to_plain(checks: list[Check]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {"checks": [asdict(check) for check in checks]}
