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
        description="Figure to improve; main: top1 of a classifier, else the main figure of the task (RMSE, mean IoU,"
        " ROC-AUC, ...) together with the samples' errors",
        json_schema_extra=FORM,
    )
    min_gain: float = Field(
        0.0,
        ge=0.0,
        title="Gain needed",
        description="Smallest gain, in the metric's unit: 0.01 is one point of accuracy",
        json_schema_extra=FORM,
    )
    confidence: float = Field(
        0.95,
        ge=0.5,
        le=0.999,
        title="Confidence",
        description="Confidence in the gain, by a paired test on the same samples. 0.95: of candidates without a gain"
        " at most 1 in 20 is promoted; 5 gained samples without a lost sample are just enough (with groups: 5 groups)."
        " 0.5: any better score suffices",
        json_schema_extra=FORM,
    )
    max_class_loss: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        title="Loss of a class allowed",
        description="Keep production if a class' accuracy falls by more than this share, beyond chance; a class of"
        " fewer than 6 samples is too small for this. 1: no check of classes",
        json_schema_extra=FORM,
    )
    keep: int | None = Field(
        None,
        ge=1,
        title="Bundles kept",
        description="Number of the model's bundles to keep: a promotion removes the oldest further bundles, never the"
        " bundle in production; default: keep all",
        json_schema_extra=EXPERT,
    )
    max_slowdown: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        title="Slowdown allowed",
        description="Keep production if the net scores fewer images/s by more than this share, measured on the same"
        " machine, beyond the spread of the measurements and 1 ms a batch. 1: no check of speed",
        json_schema_extra=EXPERT,
    )


class ApprovalConfig(StageConfig):
    """Ask a person before a better model goes into production."""

    approval: bool = Field(
        False,
        title="Ask before promoting",
        description="A better model waits for an approval on Airflow's page Required Actions; after a refusal, or"
        " without an answer, production stays",
        json_schema_extra=FORM,
    )
    approval_timeout: Duration = Field(
        "24 h",
        title="Wait for approval",
        description="Longest wait, with a unit: 90 min, 24 h, 2 d. The next retraining begins after the end of this"
        " retraining",
        json_schema_extra=EXPERT,
    )


class HandPromoteConfig(PromoteConfig):
    """Put a bundle into production by hand, if it is better than the present model."""

    bundle: Path = Field(description="Bundle, or the folder of a run with a bundle")
    reason: str = Field(min_length=1, description="Reason, for the model's history")
