"""Check whether a run has minibatches left to train, and whether the end of a run is a result."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.setup.folder_guard import prepared_files, put_back
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.snapshot import UNCHANGED
from deepspark_ops.train.snapshots.start import Start
from deepspark_ops.train.worker.outcome import WorkerOutcome

_LOG = logging.getLogger(__name__)


def is_done(run: Run, start: Start) -> bool:
    """Return whether nothing is left to train.

    Raises:
        ConfigError: The run has not trained anything and never will.
    """
    max_iter = run.solver.max_iter
    if start.clock < max_iter:
        return False
    if start.run_state is None:
        msg = f"max_iter={max_iter}: nothing to train from iteration {start.clock} on; raise max_iter"
        raise ConfigError(msg)
    if start.clock > max_iter:
        _LOG.warning(
            "max_iter=%d is below minibatch %d, which this run has reached: nothing is trained and its snapshots stay;"
            " to train less, give another run_dir",
            max_iter,
            start.clock,
        )
    _LOG.info("finished already: clock=%d max_iter=%d snapshots=%s", start.clock, max_iter, run.paths.snapshots)
    return True


def keep_record(paths: RunPaths, earlier: Mapping[Path, bytes]) -> None:
    """Put the files of a finished run back if it was prepared again with other inputs; warn that nothing is trained.

    Args:
        paths: Paths of the run, which was prepared again.
        earlier: Result of ``prepared_files`` before.
    """
    if other := _other_inputs(paths, earlier):
        put_back(earlier)
        _LOG.warning(
            "this run has trained with another %s: nothing is trained now, and its folder stays as it was; to train,"
            " give another run_dir or remove the folder",
            " and another ".join(other),
        )


def _other_inputs(paths: RunPaths, earlier: Mapping[Path, bytes]) -> list[str]:
    """Return which inputs differ; none in a folder that was moved, whose files have other paths."""
    now = prepared_files(paths.root)

    def field(files: Mapping[Path, bytes], path: Path, name: str) -> Any:
        return json.loads(files[path]).get(name) if path in files else None

    if field(earlier, paths.config, "run_dir") != field(now, paths.config, "run_dir"):
        return []
    old, new = (str(field(files, paths.dataset, "dataset")).encode() for files in (earlier, now))
    prototxts = {path for path in (*earlier, *now) if path.suffix == ".prototxt"}
    changed = {path for path in prototxts if earlier.get(path, b"").replace(old, new) != now.get(path)}
    has_other_data = field(earlier, paths.dataset, "train_digest") != field(now, paths.dataset, "train_digest")
    differs = {"solver": paths.solver in changed, "net": bool(changed - {paths.solver}), "dataset": has_other_data}
    return [name for name, is_other in differs.items() if is_other]


def check_result(
    config: TrainConfig,
    status: ExchangeStatus,
    outcomes: Sequence[WorkerOutcome],
    *,
    max_iter: int,
    has_changed: bool,
) -> None:
    """Refuse to call a run without a result a success.

    Args:
        config: The run's options.
        status: State of the exchange at the end.
        outcomes: An outcome of each worker.
        max_iter: Clock at which the run was to end.
        has_changed: Whether the center differs from the start.

    Raises:
        ConfigError: A worker met an error that the user must correct.
        TrainingFailed: The run has no result; the message has the reason.
    """
    for outcome in outcomes:
        if outcome.ending == "refused":
            raise ConfigError(outcome.message)
        if outcome.ending == "failed":
            raise TrainingFailed(outcome.message)
        if outcome.ending == "given_up":
            _LOG.warning(
                "given up after %d starts without an exchange in between: %s", config.worker_tries, outcome.message
            )
    if not status.finished:
        lost = [outcome.message for outcome in outcomes if outcome.ending == "given_up"]
        msg = (
            f"{len(lost)} of {config.n_workers} workers given up after {config.worker_tries} starts each without an"
            f" exchange in between;"
            f" {status.acknowledged} of {max_iter} minibatches are done, a retry goes on from the last"
            f" snapshot: {lost[0] if lost else 'no worker finished'}"
        )
        raise TrainingFailed(msg)
    if not any(status.exchanges):
        msg = "no worker ever exchanged with the center: the weights are what they were at the start"
        raise TrainingFailed(msg)
    if status.applied == 0:
        msg = (
            f"training changed no weight: {sum(status.exchanges)} exchanges were gathered and none was applied; lower"
            " updates_per_apply in strategy_options, or raise max_iter"
        )
        raise TrainingFailed(msg)
    if not has_changed:
        raise TrainingFailed(unchanged_text(config, max_iter=max_iter))


def unchanged_text(config: TrainConfig, *, max_iter: int) -> str:
    """Return the message to the user of a run whose parameters have not changed."""
    if not plan_strategy(config).running.repeats_data:
        return UNCHANGED
    return (
        f"training changed no weight: the first line search of {config.strategy} did not end within"
        f" max_iter={max_iter}. It measures several times over the whole training set, or over n_workers x comm_period"
        " minibatches: raise max_iter or lower comm_period"
    )
