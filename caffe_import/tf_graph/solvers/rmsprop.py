"""RMSProp."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("RMSProp", n_slots=1, takes_momentum=False)
def rmsprop_update(request: UpdateRequest) -> Update:
    """Return h' = rms_decay h + (1 - rms_decay) g**2; the step is rate g / (sqrt(h') + delta), delta outside the root.

    Tieleman, Hinton 2012, lecture 6.5.
    """
    gradient, decay = request.decayed_gradient, request.solver.rms_decay
    averaged = decay * request.slots[0] + (1 - decay) * tf.square(gradient)
    step = request.rate * gradient / (tf.sqrt(averaged) + request.solver.delta)
    return Update(step, (averaged,))
