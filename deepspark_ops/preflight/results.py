"""What evaluation will score and export ship, said before anything is trained."""

from __future__ import annotations

from collections.abc import Callable

from caffe_import.errors import CaffeImportError
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.tasks.choice import TaskWish, choose_tasks
from deepspark_ops.evaluate.tasks.registry import kind_of
from deepspark_ops.preflight.report import ResultReport


def results_of(net: Callable[[], NetSpec], wish: TaskWish) -> tuple[tuple[ResultReport, ...], str]:
    """Return the results of a net, the main one first, and why there is none.

    Args:
        net: Builds the net in phase TEST, as evaluation does.
        wish: What the user says of it.
    """
    try:
        tasks = choose_tasks(net(), wish)
    except (CaffeImportError, DeepSparkError) as error:
        return (), str(error)
    return tuple(
        ResultReport(
            task=one.task,
            outputs=one.outputs,
            target=one.target,
            activation=one.activation,
            found_by=one.found_by,
            figures=kind_of(one).figures,
            text=one.text(),
        )
        for one in tasks
    ), ""
