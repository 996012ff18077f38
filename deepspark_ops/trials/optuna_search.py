"""The next combination of a search, chosen by Optuna; the only file that imports Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caffe_import.extras import require
from deepspark_ops.config.compare import Range, Value
from deepspark_ops.trials.space import Axis, Space, Values, in_range, is_logarithmic

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Observation:
    """A trial that has ended, for the choice of further values.

    Attributes:
        values: Of the trial.
        accuracy: Of the last test; None for a failed trial.
        stopped_at: Clock of an early stop; None for a whole training.
    """

    values: Mapping[str, Value]
    accuracy: float | None
    stopped_at: int | None = None


def suggested(space: Space, observations: Sequence[Observation], seed: int) -> Values:
    """Return the next combination of Optuna's tree-structured Parzen estimator (Bergstra et al. 2011, section 4).

    The choice depends on the arguments alone: a repeated call returns the same combination.

    Args:
        space: Lists and ranges.
        observations: Trials that have ended, by number; trials that still run are unknown to the estimator.
        seed: Of the estimator; each number of observations has a seed of its own.

    Raises:
        MissingExtra: Optuna is not installed.
    """
    require("optuna", part="search=optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed + len(observations))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {name: _distribution(axis) for name, axis in space.items()}
    for observation in observations:
        study.add_trial(_as_trial(observation, distributions))
    params = study.ask(distributions).params
    return {
        name: in_range(params[name], axis) if isinstance(axis, Range) else params[name] for name, axis in space.items()
    }


def _distribution(axis: Axis) -> optuna.distributions.BaseDistribution:
    import optuna

    if not isinstance(axis, Range):
        return optuna.distributions.CategoricalDistribution(axis)
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return optuna.distributions.IntDistribution(axis.low, axis.high, log=is_logarithmic(axis))
    return optuna.distributions.FloatDistribution(float(axis.low), float(axis.high), log=is_logarithmic(axis))


def _as_trial(observation: Observation, distributions: Mapping[str, Any]) -> optuna.trial.FrozenTrial:
    import optuna

    shared: dict[str, Any] = {"params": dict(observation.values), "distributions": dict(distributions)}
    if observation.accuracy is None:
        return optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, **shared)
    if observation.stopped_at is not None:
        steps = {observation.stopped_at: observation.accuracy}
        return optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED, intermediate_values=steps, **shared)
    return optuna.trial.create_trial(value=observation.accuracy, **shared)
