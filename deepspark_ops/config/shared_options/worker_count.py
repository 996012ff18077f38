"""A number of workers: fixed, a range ``4..16``, or ``auto``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import Field, GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core import PydanticCustomError, core_schema

from deepspark_ops.config.base import FORM
from deepspark_ops.config.shared_options.schedules import OTHER_FORM

MOST_WORKERS: Final = 10_000
AUTO: Final = "auto"
AUTO_MOST: Final = 64
"""``auto`` on a cluster: a larger number is the user's decision, since center and driver serve all workers."""
_RANGE: Final = re.compile(r"(\d{1,9})\.\.(\d{1,9})")


class WorkerRange(int):
    """A number of workers that changes while a run goes on. As a number it is the largest number of workers.

    Attributes:
        text: As the user writes the range.
        fewest: The smallest number of workers.
    """

    text: str
    fewest: int

    def __new__(cls, text: str) -> WorkerRange:
        """Return the range of ``4..16`` or ``auto``.

        Raises:
            ValueError: Another text, a range that descends, or a number outside 1 to ``MOST_WORKERS``.

        Example:
            >>> workers = WorkerRange("4..16")
            >>> workers + 0, workers.fewest
            (16, 4)
        """
        ends = _RANGE.fullmatch(f"1..{AUTO_MOST}" if text == AUTO else text)
        if ends is None:
            raise PydanticCustomError(OTHER_FORM, "must be a range like 4..16, or auto")
        fewest, most = int(ends[1]), int(ends[2])
        if not 1 <= fewest <= most <= MOST_WORKERS:
            msg = f"a range ascends, from 1 to {MOST_WORKERS}, e.g. 4..16"
            raise ValueError(msg)
        workers = super().__new__(cls, most)
        workers.text, workers.fewest = text, fewest
        return workers

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        """Return the arguments of a copy."""
        return (self.text,)


def _range_schema(_: Any, __: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """Return the schema of a range: a text in JSON and in forms."""

    def validated(value: Any) -> WorkerRange:
        return value if isinstance(value, WorkerRange) else WorkerRange(value if isinstance(value, str) else "")

    return core_schema.no_info_plain_validator_function(
        validated,
        json_schema_input_schema=core_schema.str_schema(),
        serialization=core_schema.plain_serializer_function_ser_schema(lambda workers: workers.text, when_used="json"),
    )


WorkerCount = Annotated[
    Annotated[WorkerRange, GetPydanticSchema(_range_schema)] | Annotated[int, Field(ge=1, le=MOST_WORKERS)],
    Field(union_mode="left_to_right"),
]
ALLOWED_COUNTS: Final = f"a whole number from 1 to {MOST_WORKERS}, a range like 4..16, or auto"

Workers = Annotated[
    WorkerCount,
    Field(
        title="Workers",
        description="Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or GPUs"
        " of a single host, 1..64 on a cluster",
        examples=["4", "4..16", "auto"],
        json_schema_extra={**FORM, "allowed": ALLOWED_COUNTS},
    ),
]


def fewest_workers(n_workers: int) -> int:
    """Return the smallest number of workers that a count allows.

    Example:
        >>> fewest_workers(WorkerRange("4..16")), fewest_workers(8)
        (4, 8)
    """
    return n_workers.fewest if isinstance(n_workers, WorkerRange) else n_workers
