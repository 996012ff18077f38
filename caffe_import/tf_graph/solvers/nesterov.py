"""Nesterov's accelerated gradient, with the rate inside the history as in SGD."""

from __future__ import annotations

from caffe_import.tf_graph.solvers import Update, UpdateRequest, solver_rule


@solver_rule("Nesterov", n_slots=1)
def nesterov_update(request: UpdateRequest) -> Update:
    """Return h' = momentum h + rate g; the step is (1 + momentum) h' - momentum h.

    Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", in the form whose
    parameters are the look-ahead point.
    """
    momentum, (history,) = request.solver.momentum, request.slots
    moved = request.moved_history()
    return Update((1 + momentum) * moved - momentum * history, (moved,))
