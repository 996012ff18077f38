"""This project as a contender: ``ours_step.py NET N_THREADS``."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "peers")]

import tensorflow as tf  # noqa: E402
from serve import serve  # noqa: E402

from benchmarks.speed.nets import NETS, build, feeds, forward_net, read_message, scores_blob  # noqa: E402
from caffe_import.files.prototxt import parse_solver  # noqa: E402
from caffe_import.net.initial_vector import initial_vector  # noqa: E402
from caffe_import.solver.solver_spec import solver_spec  # noqa: E402
from caffe_import.tf_graph.predict import FixedForward, compile_fixed_forward  # noqa: E402
from caffe_import.tf_graph.train_step import compile_training  # noqa: E402
from deepspark_ops.processes.ahead import mapped_ahead  # noqa: E402
from deepspark_ops.processes.batch_passes import passes_at_once  # noqa: E402

SOLVER = 'type: "SGD" base_lr: 0.0001 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 100000000'
STEPS_PER_CALL = 10


def main(name: str, n_threads: int) -> None:
    """Compile and serve."""
    net = NETS[name]
    spec = build(net, read_message(net))
    function = compile_training(spec, solver_spec(parse_solver(SOLVER)), n_threads=n_threads)
    scores_of = forward_net(net, spec)

    @cache
    def passes() -> FixedForward:
        first = initial_vector(scores_of, seed=1)
        first[first == 0] = 0.01  # biases as of a trained net: TensorFlow leaves out the addition of zeros
        return compile_fixed_forward(scores_of, first, n_threads=n_threads, outputs=[scores_blob(spec)])

    n_at_once = passes_at_once(scores_of.blob_shapes.values(), n_threads, is_host=True)
    state = function.initial_state(initial_vector(spec, seed=1))
    fed = feeds(net, spec)
    per_call = min(STEPS_PER_CALL, net.n_batches)

    def step(n_steps: int) -> float:
        nonlocal state
        for first in range(0, n_steps, per_call):
            n_now = min(per_call, n_steps - first)
            start = first % net.n_batches
            state, outputs = function.run(
                state,
                step=state.updates,
                n_steps=n_now,
                rate_scale=1.0,
                seed=1,
                worker=0,
                feeds={blob: values[start : start + n_now] for blob, values in fed.items()},
                gives_away=True,
            )
        return float(outputs.losses[0])

    def forward(n_steps: int) -> None:
        """Compute batches as ``deepspark evaluate`` does, several at a time where a pass leaves cores idle."""
        batches = ({blob: values[k % net.n_batches] for blob, values in fed.items()} for k in range(n_steps))
        for _ in mapped_ahead(batches, passes(), n_threads=n_at_once):
            pass

    n_weights = sum(entry.size for entry in spec.params.entries if entry.kind == "weight")
    serve({"step": step, "forward": forward}, {"version": tf.__version__, "n_weights": n_weights}, lambda: step(1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
