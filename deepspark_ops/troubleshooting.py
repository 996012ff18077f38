"""Cause and remedy of messages, by stage: ``troubleshooting.toml``. ``docs/troubleshooting.md`` has the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text

VALUE: Final = "…"
"""Stands for a value of a run in the messages of the list."""

_LINK = re.compile(r"\[(.+?)\]\((.+?)\)")


def message_rows() -> dict[str, dict[str, list[str]]]:
    """Return stage -> part of a message -> cause and remedy, in Markdown."""
    import tomllib  # only after an error

    return tomllib.loads(regular_text(Path(__file__).with_suffix(".toml")))


def explained(message: str) -> str:
    """Return a message with the listed cause and remedy below each line that has no remedy, which follows a semicolon.

    Example:
        >>> print(explained("crop_size=40 is larger than the image, 32 x 32 pixels"))
        crop_size=40 is larger than the image, 32 x 32 pixels
        cause: images are smaller than the crop
        remedy: Resize at ingestion, or lower `crop_size`
    """
    rows = [row for stage_rows in message_rows().values() for row in stage_rows.items()]
    return "\n".join(line + _cause_and_remedy(line, rows) for line in message.splitlines())


def _cause_and_remedy(line: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    for part, (cause, remedy) in rows:
        if "; " not in line and re.search(".*".join(map(re.escape, part.split(VALUE))), line):
            return _LINK.sub(r"\1 (docs/\2)", f"\ncause: {cause}\nremedy: {remedy}")
    return ""
