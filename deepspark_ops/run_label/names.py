"""Names of runs for people. No framework, no files."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

TRAINING: Final = "training"
COMPARISON: Final = "comparison"
_WORK_OF_STAGE: Final = {
    **{stage: stage for stage in ("convert", "clean", "predict")},
    "compare": COMPARISON,
    **{stage: stage for stage in ("promote", "approve", "decide", "export", "evaluate")},
    "evaluate_production": "evaluate",
}
"""Stage -> the work of a run with this stage and no training; of several stages the first here."""
_WORK_OF_DAG: Final = {
    "deepspark_convert": "convert",
    "deepspark_clean": "clean",
    "deepspark_compare": COMPARISON,
}


def work_of_stages(stages: frozenset[str], *, has_trials: bool, has_trained: bool) -> str | None:
    """Return the work of a run by the names of its stages; None before a stage tells.

    Example:
        >>> work_of_stages(frozenset({"check", "train"}), has_trials=False, has_trained=True)
        'training'
        >>> work_of_stages(frozenset({"clean"}), has_trials=False, has_trained=False)
        'clean'
        >>> work_of_stages(frozenset({"ingest"}), has_trials=False, has_trained=False)
        'ingest'
        >>> work_of_stages(frozenset({"evaluate"}), has_trials=False, has_trained=False)
        'evaluate'
        >>> work_of_stages(frozenset({"check", "ingest"}), has_trials=False, has_trained=False)
    """
    if has_trials:
        return COMPARISON
    if has_trained or "train" in stages:
        return TRAINING
    if stages == {"ingest"}:
        return "ingest"  # a run that will train has a stage check before
    return next((work for stage, work in _WORK_OF_STAGE.items() if stage in stages), None)


def work_of_dag(dag: str, *, is_trial: bool = False) -> str:
    """Return the work of a run by the DAG's id, for a run whose stages do not tell.

    Example:
        >>> work_of_dag("deepspark_clean"), work_of_dag("mine"), work_of_dag("deepspark_compare", is_trial=True)
        ('clean', 'training', 'training')
    """
    return TRAINING if is_trial else _WORK_OF_DAG.get(dag, TRAINING)


def default_name(
    *,
    work: str,
    net: str | None,
    solver: str | None,
    strategy: str | None,
    n_workers: int | None,
    max_iter: int | None,
) -> str:
    """Return a name made of the facts in which runs differ.

    Args:
        work: Work of the run.
        net: Name of the net; None before the training.
        solver: File name of the solver.
        strategy: Strategy of the exchange.
        n_workers: Number of workers; None before the training.
        max_iter: Minibatches at the end of the training.

    Example:
        >>> default_name(work="training", net="LeNet", solver=None, strategy="easgd", n_workers=2, max_iter=1500)
        'LeNet, easgd x2, 1,500 minibatches'
        >>> nothing = {"net": None, "strategy": None, "n_workers": None, "max_iter": None}
        >>> default_name(work="comparison", solver="lenet_solver.prototxt", **nothing)
        'comparison, lenet_solver'
        >>> default_name(work="training", net="a", solver=None, strategy="easgd", n_workers=1, max_iter=None)
        'a, 1 worker'
    """
    head = net or (PurePosixPath(solver).stem if solver else "")
    parts = [head] if work == TRAINING and head else [work, head]
    if work == TRAINING:
        if n_workers == 1:
            parts.append("1 worker")
        elif strategy:
            parts.append(f"{strategy} x{n_workers}" if n_workers else strategy)
        if max_iter:
            parts.append(f"{max_iter:,} minibatches")
    return ", ".join(part for part in parts if part)
