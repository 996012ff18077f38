"""Airflow operators of the stages, for any DAG: ``from deepspark_ops.operators import DeepSparkTrainOperator``.

docs/guides/operators.md and the generated ``__init__.pyi``, for editors, document the arguments.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from caffe_import.extras import require

require("airflow", "airflow.providers.apache.spark", part=__name__)

_MODULES: Final = {
    "DeepSparkApproveOperator": "approve",
    "DeepSparkCheckOperator": "check",
    "DeepSparkCleanOperator": "clean",
    "DeepSparkConvertOperator": "convert",
    "DeepSparkDecideOperator": "promote",
    "DeepSparkEvaluateOperator": "evaluate",
    "DeepSparkEvaluateProductionOperator": "evaluate",
    "DeepSparkExportOperator": "export",
    "DeepSparkIngestOperator": "ingest",
    "DeepSparkPredictOperator": "predict",
    "DeepSparkPromoteOperator": "promote",
    "DeepSparkTrainOperator": "train",
    "form_params": "form",
    "form_templates": "tasks.stage_arguments",
}
"""Public names and their modules; a name is imported when it is asked for, so that a DAG loads what it uses."""
__all__ = sorted(_MODULES)
OPERATOR_MODULES: Final = sorted({module for name, module in _MODULES.items() if name.endswith("Operator")})


def __getattr__(name: str) -> Any:
    """Return an operator, or a function for a DAG's form.

    Raises:
        AttributeError: There is none of the name.
    """
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
