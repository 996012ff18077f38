"""The message for a training step without enough memory: the layer, the needed memory, the remedies."""

from __future__ import annotations

from math import prod
from typing import Final

from caffe_import.devices.segments import choose_segments
from caffe_import.devices.step_memory import step_memory, step_shape
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import ConfigError
from deepspark_ops.sizes import size_text
from deepspark_ops.train.setup.run import Run

_BLOBS_NAMED: Final = 3
_WORTH_SAYING: Final = 0.9


def out_of_memory(run: Run, worker: int, layer: str | None, tensorflow_text: str) -> ConfigError:
    """Return the error that ends the run: another try of the same step would have no more memory.

    Args:
        run: Has net, solver and plan.
        worker: The worker's id.
        layer: The layer of the failure, if known.
        tensorflow_text: TensorFlow's message.
    """
    net, solver = run.train_net, run.solver
    batch_sizes = [shape[0] for shape in net.inputs.values() if shape]
    where = f' in layer "{layer}"' if layer else ""
    needed = step_memory(net, step_shape(solver), run.plan.recompute).total_bytes
    remedies = ["lower batch_size (a larger iter_size keeps the minibatch as it was)"]
    if not run.plan.recompute:
        recomputed = step_memory(net, step_shape(solver), choose_segments(net)).total_bytes
        if recomputed < _WORTH_SAYING * needed:
            remedies.append(f"give --recompute (about {size_text(recomputed)})")
    if run.plan.placement is None:
        remedies.append("lay the net out over several devices (--placement auto --gpus-per-worker N)")
    return ConfigError(
        f"worker {worker}: out of memory{where} ({tensorflow_text}); a step with"
        f" batch_size={max(batch_sizes, default=1)}, iter_size={solver.iter_size} takes about {size_text(needed)};"
        f" the largest blobs: {_largest_blobs(net)};"
        f' {", or ".join(remedies)}; "deepspark check SOLVER --memory" says what fits'
    )


def _largest_blobs(net: NetSpec) -> str:
    sizes = {name: 4 * prod(shape) for name, shape in net.blob_shapes.items() if name not in _split_tops(net)}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_BLOBS_NAMED]
    return ", ".join(f"{name} {size_text(sizes[name])}" for name in largest)


def _split_tops(net: NetSpec) -> set[str]:
    return {top for layer in net.layers if layer.type == "Split" for top in layer.tops}
