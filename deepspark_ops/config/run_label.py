"""Name and tags of a run, for people: no part of the training, so the same training has the same digest."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from deepspark_ops.config.base import FORM, StageConfig

MAX_NAME: Final = 120
MAX_TAGS: Final = 300


class RunLabelConfig(StageConfig):
    """How lists, charts and pages name a run."""

    name: str = Field(
        default="",
        max_length=MAX_NAME,
        title="Name of the run",
        description="Name in lists, charts and pages; default: net, strategy, workers and minibatches",
        json_schema_extra=FORM,
    )
    tags: str = Field(
        default="",
        max_length=MAX_TAGS,
        title="Tags",
        description="Words to find the run by, with commas between them, e.g. 'baseline, paper'",
        json_schema_extra=FORM,
    )

    @field_validator("name")
    @classmethod
    def _in_a_line(cls, name: str) -> str:
        return " ".join(name.split())

    def tag_words(self) -> tuple[str, ...]:
        """Return the tags, each once."""
        words = (" ".join(word.split()) for word in self.tags.split(","))
        return tuple(dict.fromkeys(word for word in words if word))
