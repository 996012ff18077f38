"""Options of ``deepspark log``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import StageConfig


class RunLogConfig(StageConfig):
    """Print the events of a run."""

    run_dir: Path = Field(description="A run's folder: what deepspark train wrote")
    caffe: bool = Field(
        default=False,
        description="Write Caffe's own log, which parse_log.py, parse_log.sh and plot_training_log.py read",
    )
    output: Path | None = Field(None, description="File to write; default: stdout")
