"""The refusal of a request: status and message for the client."""

from __future__ import annotations


class RequestRefused(Exception):
    """A request that cannot be answered.

    Attributes:
        status: HTTP status.
        retry_after_s: Seconds after which the client may repeat the request; None if a repetition cannot help.
    """

    def __init__(self, status: int, text: str, *, retry_after_s: int | None = None) -> None:
        """Refuse a request; ``text`` has the position, the found value and the expected value."""
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s
