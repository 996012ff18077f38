"""Finds the weights of a run to score or to export. Cheap to import: a run without any is refused before all else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.run_paths import RunPaths


@dataclass(frozen=True)
class Weights:
    """The weights file to score or to export.

    Attributes:
        path: The .caffemodel (or .caffemodel.h5).
        iteration: Iteration of the snapshot; None for a file given by the user.
    """

    path: Path
    iteration: int | None


def find_weights(run: RunPaths, weights: Path | None = None) -> Weights:
    """Return ``weights``, else the weights of the run's last complete snapshot.

    Raises:
        ConfigError: There is no run, no snapshot, or no such file.
        DataError: The snapshot's weights are missing.
    """
    if not run.config.is_file():
        problem = f"no {run.config.name} in it" if run.root.is_dir() else "no such folder"
        remedy = '; give the folder that "deepspark train" wrote (option --run-dir)'
        if RunPaths(run.root.parent).config.is_file():
            remedy = f"; give its run, {run.root.parent}"
        msg = f"run_dir={run.root}: {problem}{remedy}"
        raise ConfigError(msg)
    if weights is None:
        return _last_snapshot(run)
    if not weights.is_file():
        msg = f"weights={weights}: no such file"
        raise ConfigError(msg)
    return Weights(weights, None)


def _last_snapshot(run: RunPaths) -> Weights:
    iterations = run.snapshot_iterations()
    if not iterations:
        msg = (
            f"run_dir={run.root}: no snapshot in {run.snapshots.name}/; training has not reached one, or failed before "
            "it; train on, or give a .caffemodel (option --weights)"
        )
        raise ConfigError(msg)
    if path := run.last_weights():
        return Weights(path, iterations[-1])
    msg = f"{run.snapshots}: the state of iteration {iterations[-1]} is there, its .caffemodel is missing"
    raise DataError(msg)
