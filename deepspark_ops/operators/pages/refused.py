"""A request that a page does not answer. No framework."""

from __future__ import annotations


class Refused(Exception):
    """The request gets a message in place of a page. ``status`` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        """Keep both."""
        super().__init__(message)
        self.status = status


def no_run(key: str) -> Refused:
    """Return the refusal of a run that does not exist, or that the person may not see: the two look the same."""
    return Refused(f'there is no run "{key}", or it is of a DAG that you may not read', 404)
