"""Stochastic gradient descent with Caffe's momentum: the rate lives inside the history."""

from __future__ import annotations

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("SGD", n_slots=1)
def sgd_update(request: UpdateRequest) -> Update:
    """Return h' = momentum h + rate g; the step is h'.

    A change of the rate therefore acts late: what h holds was scaled by the old one. Frameworks that compute
    w -= rate h act at once and differ after every change.
    """
    history = request.moved_history()
    return Update(history, (history,))
