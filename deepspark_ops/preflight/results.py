"""Results for evaluation and export, reported before training."""

from __future__ import annotations

from collections.abc import Callable

from caffe_import.errors import CaffeImportError
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.samples import require_sample_set
from deepspark_ops.evaluate.tasks.choice import TaskWish, choose_tasks
from deepspark_ops.evaluate.tasks.registry import kind_of
from deepspark_ops.preflight.report import ResultReport


def results_of(net: Callable[[], NetSpec], wish: TaskWish) -> tuple[tuple[ResultReport, ...], str]:
    """Return the results of a net, the main result first, and the reason of missing results.

    Args:
        net: Builds the net in phase TEST, as evaluation does.
        wish: The user's options about the task.
    """
    try:
        scored = net()
        tasks = choose_tasks(scored, wish)
        require_sample_set(scored)
    except (CaffeImportError, DeepSparkError) as error:
        return (), str(error)
    return tuple(
        ResultReport(
            task=task.task,
            outputs=task.outputs,
            target=task.target,
            activation=task.activation,
            found_by=task.found_by,
            figures=kind_of(task).figures,
            text=task.text(),
        )
        for task in tasks
    ), ""
