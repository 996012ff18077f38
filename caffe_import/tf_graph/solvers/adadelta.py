"""AdaDelta; the solver's momentum is its decay."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("AdaDelta", n_slots=2)
def adadelta_update(request: UpdateRequest) -> Update:
    """Return both averages and the step rate v, with v = g sqrt((U + delta) / (G' + delta)), delta inside the root.

    G' averages g**2, U' averages v**2. The rate does not enter U, so base_lr is a plain factor on the step.
    Slots: G, then U. Zeiler 2012, "ADADELTA: an adaptive learning rate method", algorithm 1.
    """
    decay, delta = request.solver.momentum, request.solver.delta
    gradient = request.decayed_gradient
    gradients, updates = request.slots
    gradients = decay * gradients + (1 - decay) * tf.square(gradient)
    value = gradient * tf.sqrt((updates + delta) / (gradients + delta))
    updates = decay * updates + (1 - decay) * tf.square(value)
    return Update(request.rate * value, (gradients, updates))
