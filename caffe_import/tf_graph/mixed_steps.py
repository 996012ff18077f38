"""Steps whose passes have samples of several sizes: the gradients of single passes are added up, then one update."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.train_step import StepGradient, StepOutputs, TrainFunction, TrainState

Array = npt.NDArray[Any]


def are_mixed(feeds: Mapping[str, Any]) -> bool:
    """Return whether feeds are of a step whose passes have several sizes: arrays (iter_size,) of objects."""
    return any(getattr(values, "dtype", None) == np.object_ for values in feeds.values())


class MixedSteps:
    """``TrainFunction`` for single steps of mixed feeds; the numbers of ``debug_info`` are left out.

    Feeds are blob -> (iter_size, *blob shape), or (iter_size,) objects, each [*blob shape] of its pass.
    """

    def __init__(self, function: TrainFunction) -> None:
        """Compile nothing yet."""
        self._function = function
        entries, layer = function.net.params.entries, function.net.layer
        # See ``PassGraph.is_replaced``.
        self._of_last_pass = [entry for entry in entries if layer(entry.layer).type == "Parameter"]

    def run(
        self,
        state: TrainState,
        *,
        step: int,
        n_steps: int,
        rate_scale: float,
        seed: int,
        worker: int,
        feeds: Mapping[str, Array],
        blob_factors: Vector | None = None,
        gives_away: bool = False,
    ) -> tuple[TrainState, StepOutputs]:
        """Make an update; arguments as of ``TrainFunction.run``.

        Raises:
            NetError: See ``gradient``.
        """
        assert n_steps == 1, "a step of mixed feeds is alone"
        del gives_away  # the update does not write into the state's memory
        state, result = self.gradient(state, step=step, seed=seed, worker=worker, feeds=feeds)
        state, rate = self._function.apply(
            state, result.gradient, step=step, rate_scale=rate_scale, blob_factors=blob_factors
        )
        outputs = {name: value[np.newaxis] for name, value in result.outputs.items()}
        n_rows = {name: value[np.newaxis] for name, value in result.n_rows.items()}
        losses, rates = np.array([result.loss], np.float32), np.array([rate], np.float32)
        return state, StepOutputs(losses, outputs, rates, None, n_rows, scales=result.scales)

    def gradient(
        self, state: TrainState, *, step: int, seed: int, worker: int, feeds: Mapping[str, Array]
    ) -> tuple[TrainState, StepGradient]:
        """Add up the gradients of a step's passes; arguments as of ``TrainFunction.gradient``.

        Raises:
            NetError: A layer cannot have such a sample, or replicas share the passes of a step.
        """
        iter_size = self._function.solver.iter_size
        total, loss = np.zeros(self._function.net.params.n_params, np.float32), np.float32(0)
        for k in range(iter_size):
            batch = {name: values[k][np.newaxis] for name, values in feeds.items()}
            # With one pass a step, this step has the seed of pass k.
            state, result = self._passes.gradient(
                state, step=step * iter_size + k, seed=seed, worker=worker, feeds=batch
            )
            for entry in self._of_last_pass:
                total[entry.offset : entry.stop] = 0
            total += result.gradient
            loss += np.float32(result.loss)
        return state, StepGradient(
            total, float(loss / np.float32(iter_size)), result.outputs, result.n_rows, scales=result.scales
        )

    @cached_property
    def _passes(self) -> TrainFunction:
        if self._function.n_replicas > 1:
            msg = (
                f"a step has samples of several sizes, and its passes are shared by {self._function.n_replicas}"
                " replicas, which compute equal sizes alone; allowed: no replicas, or samples of one size"
            )
            raise NetError(msg)
        return self._function.of_one_pass()
