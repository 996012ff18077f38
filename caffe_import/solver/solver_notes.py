"""Solver settings with no effect or an unexpected effect; a line each, for reports and logs."""

from __future__ import annotations

from caffe_import.solver.solver_spec import SolverSpec


def solver_notes(spec: SolverSpec, *, net_asks_for_debug: bool = False) -> tuple[str, ...]:
    """Return the notes of a solver.

    Args:
        spec: The solver.
        net_asks_for_debug: Does its training net have ``debug_info: true``?

    Example:
        >>> from caffe_import.files.prototxt import parse_solver
        >>> from caffe_import.solver.solver_spec import solver_spec
        >>> text = 'base_lr: 1 lr_policy: "fixed" max_iter: 9 clip_gradients: 0'
        >>> solver_notes(solver_spec(parse_solver(text)))
        ('clip_gradients: 0 makes every gradient 0, as in Caffe; a negative number means no clipping',)
    """
    notes = []
    if spec.message.HasField("layer_wise_reduce"):
        notes.append(
            "layer_wise_reduce is ignored: it is for Caffe's multi-GPU training; workers exchange as strategy and "
            "comm_period say"
        )
    if spec.message.test_interval > 0 and not spec.message.test_iter:
        notes.append("test_interval has no effect without test_iter, as in Caffe: the net is not tested")
    if spec.lr_policy == "multistep" and list(spec.stepvalue) != sorted(spec.stepvalue):
        steps = ", ".join(map(str, spec.stepvalue))
        notes.append(f"stepvalue {steps} does not rise: each step waits for the step before, as in Caffe")
    if spec.message.snapshot_diff:
        notes.append("snapshot_diff is ignored: snapshots hold no gradients")
    if spec.clip_gradients == 0:
        notes.append("clip_gradients: 0 makes every gradient 0, as in Caffe; a negative number means no clipping")
    if spec.debug_info and spec.display <= 0:
        notes.append("debug_info: its lines are written with the loss, and display is 0; only tests will write some")
    if net_asks_for_debug and not spec.debug_info:
        notes.append("debug_info of the net has no effect in training, as in Caffe; set it in the solver")
    return tuple(notes)
