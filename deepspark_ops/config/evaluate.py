"""Options of stage evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from deepspark_ops.config.base import (
    EXPERT,
    DataPathField,
    Engine,
    InsecureNetwork,
    ListenAddress,
    ListenPort,
    StageConfig,
)
from deepspark_ops.config.shared_options.batch_size import BatchSize
from deepspark_ops.config.shared_options.devices import DeviceChoice
from deepspark_ops.config.shared_options.task import OutputBlobs, TargetBlob, TaskChoice

SplitChoice = Annotated[
    Literal["train", "validation", "test"],
    Field(title="Part that is scored", description="Part of the dataset to score", json_schema_extra=EXPERT),
]


class EvaluateConfig(StageConfig):
    """Score a trained net on a dataset with the figures of its task."""

    run_dir: Path = Field(description="Run whose last snapshot is scored")
    dataset: DataPathField | None = Field(None, description="Ingested dataset; default: the run's dataset")
    split: SplitChoice = "test"
    weights: Path | None = Field(
        None, description="Score this .caffemodel with the run's net; default: the run's last snapshot"
    )
    output: Path | None = Field(None, description="Folder for metrics.json and report.html; default RUN/evaluation")
    devices: DeviceChoice = "auto"
    batch_size: BatchSize = None
    production: Path | None = Field(
        None, description="Folder with another net's evaluation on the same samples, to compare in the report"
    )
    production_samples: Path | None = Field(
        None, description="samples.h5 of the other net's set at the promotion; the report counts new samples"
    )
    worst: int = Field(
        24, ge=0, le=1_000, description="Most confident mistakes, or samples with the largest errors, in the report"
    )
    saliency: int = Field(
        4,
        ge=0,
        le=100,
        title="Mistakes with maps of pixels",
        description="Most confident mistakes of a classification with maps of the answer's pixels in the report",
        json_schema_extra=EXPERT,
    )
    task: TaskChoice = "auto"
    output_blob: OutputBlobs = None
    target_blob: TargetBlob = None
    slices: str | None = Field(
        None,
        min_length=1,
        description="Properties of samples, with commas; the report has figures for each value. Properties: class,"
        " folder, shard; for a dataset of a table also group and id, or the columns' names",
    )
    scores: bool = Field(False, description="Write the scores of all classes of each sample into samples.parquet, too")
    engine: Engine = Field(
        "auto",
        title="Engine of the evaluation",
        description="Place of the scoring: spark (tasks of Spark, for many samples; a DAG uses the Spark connection, a"
        " command uses master), process (a single process), or auto (a process unless master is given)",
        json_schema_extra=EXPERT,
    )
    master: str | None = Field(None, description="Spark master of engine=spark; default local[*]")
    task_samples: int = Field(
        20_000,
        ge=1,
        title="Samples of a scoring task",
        description="Most samples of a task of Spark",
        json_schema_extra=EXPERT,
    )
    listen_address: ListenAddress = "auto"
    listen_port: ListenPort = 0
    insecure_network: InsecureNetwork = False

    @model_validator(mode="after")
    def _check_engine(self) -> EvaluateConfig:
        if self.engine == "process" and self.master is not None:
            msg = f"engine=process, master={self.master}: a process needs no master; use engine=spark, or leave one out"
            raise ValueError(msg)
        return self

    @property
    def is_in_spark(self) -> bool:
        """Whether tasks of Spark score."""
        return self.engine == "spark" or (self.engine == "auto" and self.master is not None)

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """The properties of ``slices``, each once."""
        return tuple(dict.fromkeys(name.strip() for name in (self.slices or "").split(",") if name.strip()))


class ScoreBundleConfig(StageConfig):
    """Score an exported bundle on a run's data, to compare bundle and run."""

    run_dir: Path = Field(description="Run whose data, labels and ignored label count")
    bundle: Path = Field(description="Bundle to score")
    output: Path = Field(description="Folder for metrics.json and samples.h5")
    production_rows: bool = Field(
        False,
        title="Samples of production as a table",
        description="Write samples.parquet of the bundle in production, too, a row for each sample",
        json_schema_extra=EXPERT,
    )
    dataset: DataPathField | None = Field(None, description="Ingested dataset; default: the run's dataset")
    split: SplitChoice = "test"
    devices: DeviceChoice = "auto"
    batch_size: BatchSize = None
    task: TaskChoice = "auto"
    output_blob: OutputBlobs = None
    target_blob: TargetBlob = None
