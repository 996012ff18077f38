"""Options of stage check."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from deepspark_ops.config.base import (
    DataPathField,
    MemorySize,
    SolverFile,
    SolverOverrides,
    StageConfig,
    StartWeights,
)
from deepspark_ops.config.ingest import SourceConfig
from deepspark_ops.config.shared_options.devices import (
    DeviceChoice,
    GpusPerWorker,
    PlacementChoice,
    PrecisionChoice,
    Recompute,
    ShareGpus,
)
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart
from deepspark_ops.config.shared_options.task import OutputBlobs, TargetBlob, TaskChoice
from deepspark_ops.config.shared_options.worker_count import Workers


class CheckConfig(StageConfig):
    """Read the solver and its nets and report their needs, before a cluster is needed."""

    solver: SolverFile
    overrides: SolverOverrides = ""
    weights: StartWeights = None
    dataset: DataPathField | None = Field(None, description="Ingested dataset; default: the net's own sources")
    ingest: SourceConfig | None = Field(
        None, description="Raw data for a later ingestion; the first samples replace a dataset"
    )
    n_workers: Workers = 2
    devices: DeviceChoice = "auto"
    share_gpus: ShareGpus = False
    gpus_per_worker: GpusPerWorker = 1
    placement: PlacementChoice = "none"
    recompute: Recompute = False
    precision: PrecisionChoice = "float32"
    memory: bool = Field(
        False,
        description="Show the training net's memory by layer, and changes to fit the net into the available memory",
    )
    memory_limit: MemorySize | None = Field(
        None, description="Largest memory of a training step on a device, e.g. 8GiB; default: the available memory"
    )
    svg: Path | None = Field(
        None, description="Draw the training net to this SVG file, or the first test net if there is no training net"
    )
    task: TaskChoice = "auto"
    output_blob: OutputBlobs = None
    target_blob: TargetBlob = None
    parity: bool = Field(False, description="Run the recorded cases of Caffe for the nets' layer types")
    parity_cases: Path | None = Field(None, description="Folder of recorded cases; default: the cases in the package")
    run_dir: Path | None = Field(None, description="Folder of the run to write the comparison into, as parity.json")
    named_files: NamedFilesPart = AS_GIVEN

    @model_validator(mode="after")
    def _check(self) -> CheckConfig:
        if self.dataset is not None and self.ingest is not None:
            msg = f"dataset={self.dataset} and source={self.ingest.source}: give one; a dataset is ingested already"
            raise ValueError(msg)
        return self
