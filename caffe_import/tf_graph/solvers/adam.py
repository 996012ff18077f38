"""Adam."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("Adam", n_slots=2)
def adam_update(request: UpdateRequest) -> Update:
    """Return m', v' and the step rate sqrt(1 - b2**t) / (1 - b1**t) m' / (sqrt(v') + delta).

    b1 is momentum, b2 momentum2, t counts updates from 1. Slots: m, then v. Kingma, Ba 2015, with the correction
    moved into the rate (their section 2), so delta is added to the *uncorrected* root.
    """
    first_decay, second_decay = request.solver.momentum, request.solver.momentum2
    gradient = request.decayed_gradient
    first, second = request.slots
    first = first_decay * first + (1 - first_decay) * gradient
    second = second_decay * second + (1 - second_decay) * tf.square(gradient)
    # In float64, as Caffe's pow: in float32, 1 - 0.999**1 would be off by 1e-5.
    t = tf.cast(request.update, tf.float64)
    correction = tf.sqrt(1 - second_decay**t) / (1 - first_decay**t)
    rate = request.rate * tf.cast(correction, tf.float32)
    return Update(rate * first / (tf.sqrt(second) + request.solver.delta), (first, second))
