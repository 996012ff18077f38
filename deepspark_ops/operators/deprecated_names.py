"""The operators under their old names, for a single version, with a warning.

Such an operator takes the values from the DAG's form and the run from the task ``check``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

from deepspark_ops.operators.form import form_schemas
from deepspark_ops.operators.tasks.stage_arguments import argument_fields

PREFIX: Final = "DeepSpark"
_OF_CHECK: Final = "{{ ti.xcom_pull(task_ids='check') }}"


def old_name_of(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` for the old names of the module's operators.

    Args:
        module: Name of the module.
        names: What it holds.
    """

    def __getattr__(name: str) -> Any:
        operator = names.get(f"{PREFIX}{name}")
        if not name.endswith("Operator") or operator is None:
            msg = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(msg)
        warnings.warn(
            f"{module}.{name} is now {PREFIX}{name}, which takes its values as arguments (docs/guides/operators.md);"
            " the old name goes with the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return _from_form(operator)

    return __getattr__


def _from_form(operator: Any) -> type:
    """Return a subclass of an operator with the old constructor. Airflow finds a task's buttons by its new name."""

    def __init__(self: Any, **kwargs: Any) -> None:
        form = {field for model in operator.config_models for field in form_schemas(model)} & set(
            argument_fields(operator)
        )
        values = {field: f"{{{{ params.get('{field}') }}}}" for field in form}
        values |= dict.fromkeys(operator.follows_check, _OF_CHECK)
        operator.__init__(self, **{**values, "refuse_unknown_conf": True, **kwargs})

    old_class: type = type(operator)(
        operator.__name__, (operator,), {"__init__": __init__, "__module__": operator.__module__}
    )
    return old_class
