"""Options of stage export."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.shared_options.bundle_formats import BundleFormats
from deepspark_ops.config.shared_options.task import OutputBlobs, TaskChoice


class ExportConfig(StageConfig):
    """Write the bundle: SavedModel, .caffemodel, deploy.prototxt, labels, mean, metrics, manifest."""

    run_dir: Path = Field(description="Run to export")
    output: Path | None = Field(None, description="Bundle folder; default RUN/bundle")
    weights: Path | None = Field(None, description="Export this .caffemodel instead of the run's last snapshot")
    check_samples: int = Field(
        32, ge=1, le=10_000, description="Number of real samples on which each exported model must agree with the net"
    )
    class_names: Path | None = Field(
        None, description="Text file with a class name per line, class 0 first; default: the names in the dataset"
    )
    formats: BundleFormats = None
    task: TaskChoice = "auto"
    output_blob: OutputBlobs = None
