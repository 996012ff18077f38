"""Base of the models of files and reports, without unknown fields, and the first problem of a damaged file in words."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class FrozenModel(BaseModel):
    """Values that never change, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def first_problem(error: ValidationError, *, content_name: str = "file") -> str:
    """Return the first problem of a file's content as ``field: problem``.

    Args:
        error: Error of the content's validation.
        content_name: Name of the content, in place of a field.

    Example:
        >>> try:
        ...     FrozenModel.model_validate_json('{"color": 1}')
        ... except ValidationError as error:
        ...     first_problem(error)
        'color: Extra inputs are not permitted'
    """
    problem = error.errors()[0]
    field = ".".join(str(part) for part in problem["loc"]) or content_name
    return f"{field}: {problem['msg'].removeprefix('Value error, ')}"
