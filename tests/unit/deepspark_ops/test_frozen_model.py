"""First problem of a file's content."""

import pytest
from pydantic import ValidationError, model_validator

from deepspark_ops.frozen_model import FrozenModel, first_problem


class Range(FrozenModel):
    least: int
    largest: int

    @model_validator(mode="after")
    def check(self) -> "Range":
        if self.least > self.largest:
            raise ValueError("least is above largest")
        return self


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"least": 2, "largest": 1}', "line: least is above largest"),
        ('{"least": "x", "largest": 1}', "least: Input should be a valid integer, unable to parse string"),
    ],
)
def test_a_problem_has_its_field_or_the_name_of_the_whole(content: str, problem: str) -> None:
    with pytest.raises(ValidationError) as error:
        Range.model_validate_json(content)
    assert first_problem(error.value, content_name="line").startswith(problem)
