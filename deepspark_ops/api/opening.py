"""``ds.open``: the object of a folder, by what the folder holds."""

from __future__ import annotations

from typing import Final

from deepspark_ops.api.results.bundle import Bundle
from deepspark_ops.api.results.comparison import Comparison
from deepspark_ops.api.results.dataset import Dataset
from deepspark_ops.api.results.evaluation import Evaluation
from deepspark_ops.api.results.model import Model
from deepspark_ops.api.results.result_folder import ResultFolder, StrPath, absolute_path
from deepspark_ops.api.results.run import Run
from deepspark_ops.api.results.simulation import Simulation
from deepspark_ops.errors import ConfigError

_KINDS: Final[tuple[type[ResultFolder], ...]] = (Dataset, Comparison, Run, Bundle, Simulation, Evaluation, Model)
"""In the order in which they are tried: a comparison's folder may hold what a run's folder holds."""


def open(folder: StrPath) -> ResultFolder:
    """Return the run, dataset, bundle, model, comparison, evaluation or simulation in a folder.

    Raises:
        ConfigError: There is no such folder, or it is none of these.
    """
    path = absolute_path(folder)
    for kind in _KINDS:
        if kind.is_at(path):
            return kind(path)
    problem = "holds none of these" if path.is_dir() else "no such folder"
    named = ", ".join(f"{'an' if kind.kind.startswith('e') else 'a'} {kind.kind}" for kind in _KINDS)
    msg = f"folder={folder}: {problem}; allowed: a folder with {named}"
    raise ConfigError(msg)
