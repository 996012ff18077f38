"""A request that is not answered: the status and the sentence that its sender gets."""

from __future__ import annotations


class RequestRefused(Exception):
    """A request that cannot be answered.

    Attributes:
        status: HTTP status.
        retry_after_s: Seconds after which it may be sent again; None where that would not help.
    """

    def __init__(self, status: int, text: str, *, retry_after_s: int | None = None) -> None:
        """Refuse a request; ``text`` says where, what was found and what is expected."""
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s
