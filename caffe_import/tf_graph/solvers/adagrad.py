"""AdaGrad."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("AdaGrad", n_slots=1, takes_momentum=False)
def adagrad_update(request: UpdateRequest) -> Update:
    """Return h' = h + g**2; the step is rate g / (sqrt(h') + delta), with delta outside the root.

    Duchi, Hazan, Singer 2011, "Adaptive subgradient methods".
    """
    gradient = request.decayed_gradient
    summed = request.slots[0] + tf.square(gradient)
    step = request.rate * gradient / (tf.sqrt(summed) + request.solver.delta)
    return Update(step, (summed,))
