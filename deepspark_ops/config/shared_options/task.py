"""Options about a net's task, for nets with an unclear task."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from deepspark_ops.config.base import EXPERT

TaskName = Literal["classification", "multi_label", "regression", "embedding", "reconstruction", "segmentation"]
TASK_NAMES: Final[tuple[TaskName, ...]] = get_args(TaskName)

TaskChoice = Annotated[
    Literal["auto", "classification", "multi_label", "regression", "embedding", "reconstruction", "segmentation"],
    Field(
        title="Task",
        description="Task of the net: classification (one class a sample), multi_label (each class yes or no),"
        " regression (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel);"
        " auto: inferred from the net's losses and outputs",
        json_schema_extra=EXPERT,
    ),
]
OutputBlobs = Annotated[
    str | None,
    Field(
        title="Output blob",
        description="Blob with the net's answers, or two blobs with a comma between for the sides of a pair; default:"
        " inferred from the net",
        json_schema_extra=EXPERT,
    ),
]
TargetBlob = Annotated[
    str | None,
    Field(
        title="Target blob",
        description="Blob with the expected answers: labels, or the values to reconstruct; default: inferred from the"
        " net",
        json_schema_extra=EXPERT,
    ),
]
