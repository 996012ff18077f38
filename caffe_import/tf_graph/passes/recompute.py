"""Gradient checkpointing: only the results of a run of layers are stored; the backward pass computes the run again.

Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016), section 4.
``devices/segments.py`` chooses the segments.

Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016), section 4. Which layers make
a segment is decided in ``devices/segments.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from caffe_import.devices.layer_runs import LayerRun, layer_runs
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.tf_graph.operations.own_gradient import own_gradient
from caffe_import.tf_graph.passes.pass_values import PassInputs, PassResults
from caffe_import.tf_graph.passes.places import Places

Tensors: TypeAlias = Sequence[tf.Tensor]
EmitLayer = Callable[[int, LayerSpec, PassInputs, PassResults], None]
Scope = Callable[[], AbstractContextManager[Any]]


def emit_recomputing(
    net: NetSpec,
    segments: Sequence[Sequence[str]],
    emit: EmitLayer,
    layer_devices: Places,
    pass_inputs: PassInputs,
    pass_outputs: PassResults,
) -> None:
    """Emit all layers of ``net``; the gradient of each of ``segments`` computes the layers again.

    Statistics and layer state move once, by the first computation. The second computation has the same inputs, random
    seeds included, and so makes the same values.

    Args:
        net: The net.
        segments: As ``ComputePlan.recompute``, each on one device.
        emit: Emits one layer; it reads nothing of the pass but what it is given.
        layer_devices: Where the layers are.
        pass_inputs: Of the pass.
        pass_outputs: What is emitted is added to it.
    """
    later_gradients = LaterGradients()
    has_segment_before = False
    for run in layer_runs(net, segments):
        if run.is_recomputed or (has_segment_before and any(layer.definition.blobs for _, layer in run.layers)):
            scope = partial(layer_devices.on, layer_devices.of_layer(run.layers[0][1])[0])
            _emit_run(_RunInputs.of(run, net, pass_inputs, pass_outputs), emit, later_gradients, scope, pass_outputs)
        else:
            for position, layer in run.layers:
                emit(position, layer, pass_inputs, pass_outputs)
        has_segment_before |= run.is_recomputed


@dataclass
class LaterGradients:
    """Gradients of the later segments; gradients are built from the last segment to the first."""

    tensors: list[tf.Tensor] = field(default_factory=list)


def with_own_gradient(
    compute: Callable[[Tensors], Tensors], inputs: Tensors, later: LaterGradients, scope: Scope, *, recomputes: bool
) -> Tensors:
    """Return ``compute(inputs)``.

    Args:
        compute: Adds operations to the graph; the same values for the same inputs, whatever else it notes. It must
            read no tensor that it is not given, or that tensor's gradient is lost.
        inputs: Float tensors, and the integers of random seeds.
        later: The segment's gradient waits for these, and then takes their place. Else TensorFlow may leave the weight
            gradients behind it, and with them the memory that they read, until after it.
        scope: The device's.
        recomputes: Does the gradient call ``compute`` again?
    """

    @own_gradient
    def segment(*first: tf.Tensor) -> tuple[Tensors, Callable[..., Tensors]]:
        def gradient(*of_outputs: tf.Tensor) -> Tensors:
            # Within a gradient operations go where the one is that they are the gradient of.
            with tf.compat.v1.get_default_graph().colocate_with(None, ignore_existing=True), scope():
                reads, recomputed = list(first), outputs
                if recomputes:
                    # Not before all gradients are there, and not merged with the first computation: the operations
                    # have other inputs.
                    with tf.control_dependencies([*of_outputs, *later.tensors]):
                        reads = [tf.identity(tensor) for tensor in first]
                    recomputed = compute(reads)
                input_gradients = tf.gradients(recomputed, reads, of_outputs)
                input_gradients = [part if part is None else tf.convert_to_tensor(part) for part in input_gradients]
            later.tensors = [part for part in input_gradients if part is not None]
            return input_gradients

        outputs = compute(first)
        return outputs, gradient

    with scope():
        recomputed: Tensors = segment(*inputs)
    return recomputed


@dataclass(frozen=True)
class _RunInputs:
    """Inputs of a run of layers from the pass, as a flat row of tensors.

    Attributes:
        run: The run.
        entries: Positions in the layout of the parameter blobs that it reads.
        state: Keys of its layers' state.
        pass_inputs: Of the pass.
        earlier_results: The pass when the run begins.
    """

    run: LayerRun
    entries: tuple[int, ...]
    state: tuple[str, ...]
    pass_inputs: PassInputs
    earlier_results: PassResults

    @classmethod
    def of(cls, run: LayerRun, net: NetSpec, pass_inputs: PassInputs, pass_outputs: PassResults) -> _RunInputs:
        definitions = {layer.name: layer.definition for _, layer in run.layers}
        entries = sorted(
            {
                net.params.uses[name, index]
                for name, definition in definitions.items()
                for index in range(len(definition.blobs))
            }
        )
        state = tuple(f"{name}/{key}" for name, definition in definitions.items() for key in definition.state_shapes)
        outputs_before = replace(
            pass_outputs,
            entries=list(pass_outputs.entries),
            state=dict(pass_outputs.state),
            blobs=dict(pass_outputs.blobs),
        )
        return cls(run, tuple(entries), state, pass_inputs, outputs_before)

    def flat(self) -> list[tf.Tensor]:
        """Return the tensors in a fixed order."""
        blobs = [self.earlier_results.blobs[name].values for name in self.run.reads]
        entries = [self.earlier_results.entries[at] for at in self.entries]
        return [
            *blobs,
            *tf.nest.flatten(entries),
            *(self.earlier_results.state[key] for key in self.state),
            self.pass_inputs.seed,
        ]

    def wrap(self, tensors: Tensors) -> tuple[PassInputs, PassResults]:
        """Return the tensors of ``flat`` as what the run's layers read."""
        remaining_tensors: Iterator[tf.Tensor] = iter(tensors)
        run_outputs = PassResults(list(self.earlier_results.entries), dict(self.earlier_results.state))
        run_outputs.blobs.update(
            (name, self.earlier_results.blobs[name].wrap(next(remaining_tensors))) for name in self.run.reads
        )
        for at in self.entries:
            entry = self.earlier_results.entries[at]
            run_outputs.entries[at] = (
                tuple(next(remaining_tensors) for _ in entry) if isinstance(entry, tuple) else next(remaining_tensors)
            )
        run_outputs.state.update((key, next(remaining_tensors)) for key in self.state)
        return replace(self.pass_inputs, seed=next(remaining_tensors)), run_outputs


def _emit_run(
    inputs: _RunInputs, emit: EmitLayer, later: LaterGradients, scope: Scope, pass_outputs: PassResults
) -> None:
    run = inputs.run
    computed: list[PassResults] = []

    def compute(tensors: Tensors) -> Tensors:
        run_inputs, run_outputs = inputs.wrap(tensors)
        for position, layer in run.layers:
            emit(position, layer, run_inputs, run_outputs)
        computed.append(run_outputs)
        return [*(run_outputs.blobs[blob].values for blob in run.gives), *run_outputs.losses]

    outputs = with_own_gradient(compute, inputs.flat(), later, scope, recomputes=run.is_recomputed)
    first = computed[0]
    blobs, losses = outputs[: len(run.gives)], outputs[len(run.gives) :]
    pass_outputs.blobs.update((name, first.blobs[name].wrap(blob)) for name, blob in zip(run.gives, blobs, strict=True))
    pass_outputs.losses += losses
    for at, moved in first.updates.items():
        pass_outputs.entries[at] = pass_outputs.updates[at] = moved
    pass_outputs.state.update((key, first.state[key]) for key in inputs.state)
