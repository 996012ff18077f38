"""Options of stage promote."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from deepspark_ops.config.base import EXPERT, FORM, StageConfig
from deepspark_ops.config.shared_options.durations import Duration


class PromoteConfig(StageConfig):
    """Put a bundle into production if it is better than the present model."""

    models: Path = Field(
        Path("models"), title="Folder of models", description="Folder of models in production", json_schema_extra=EXPERT
    )
    model: str = Field(
        "model",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        title="Model",
        description="Name of the model in production: at most 64 letters, digits, dots, dashes and underscores",
        json_schema_extra={
            **FORM,
            "allowed": "at most 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        },
    )
    metric: Literal["main", "top1", "top5", "loss"] = Field(
        "main",
        title="Measure",
        description="What must be better; main: top1 of a classifier, else what its task is judged by (RMSE, mean IoU,"
        " ROC-AUC, ...), and the samples' errors with it",
        json_schema_extra=FORM,
    )
    min_gain: float = Field(
        0.0,
        ge=0.0,
        title="Gain needed",
        description="How much better at least, in the metric's unit: 0.01 is one point of accuracy",
        json_schema_extra=FORM,
    )
    confidence: float = Field(
        0.95,
        ge=0.5,
        le=0.999,
        title="Confidence",
        description="How sure the gain must be, by a paired test on the same samples. 0.95: of candidates that are no"
        " better at most 1 in 20 goes in; 5 samples gained and none lost are just enough, of a dataset with groups 5"
        " groups. 0.5: whatever scores better",
        json_schema_extra=FORM,
    )
    max_class_loss: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        title="Loss of a class allowed",
        description="Keep production if a class' accuracy falls by more than this share, beyond chance; a class of"
        " fewer than 6 samples is too small to say so. 1: no class is looked at",
        json_schema_extra=FORM,
    )
    keep: int | None = Field(
        None,
        ge=1,
        title="Bundles kept",
        description="How many bundles of the model stay: after a promotion the oldest above this are removed, never"
        " what is in production; default: all stay",
        json_schema_extra=EXPERT,
    )
    max_slowdown: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        title="Slowdown allowed",
        description="Keep production if the net scores fewer images/s by more than this share, measured on the same"
        " machine, beyond what its measurements differ by and 1 ms a batch. 1: speed is not looked at",
        json_schema_extra=EXPERT,
    )


class ApprovalConfig(StageConfig):
    """Ask a person before a better model goes into production."""

    approval: bool = Field(
        False,
        title="Ask before promoting",
        description="A better model waits until somebody approves it on Airflow's page Required Actions; refused, or"
        " without an answer, production stays",
        json_schema_extra=FORM,
    )
    approval_timeout: Duration = Field(
        "24 h",
        title="Wait for approval",
        description="How long at most, with a unit: 90 min, 24 h, 2 d. The next retraining begins when this one has"
        " ended",
        json_schema_extra=EXPERT,
    )


class HandPromoteConfig(PromoteConfig):
    """Put a bundle into production by hand, if it is better than the present model."""

    bundle: Path = Field(description="Bundle, or the folder of a run that has one")
    reason: str = Field(min_length=1, description="Why; kept in the model's history")
