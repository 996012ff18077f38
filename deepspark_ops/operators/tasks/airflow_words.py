"""Messages of the stages in Airflow's words: operators and their arguments in place of commands and options."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Final

_COMMAND_OR_OPTION: Final = re.compile(
    r"""(?P<quote>["`])deepspark[ ](?P<command>\w+)(?P<rest>(?:[ ][^"`\n]*)?)(?P=quote)
    | (?<![\w-])--(?P<option>[a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?:[ ](?P<value>[^`\s]+)(?=`))?""",
    re.VERBOSE,
)
_OPTION: Final = re.compile(r"(?<!\S)--([a-z0-9-]+)")


def airflow_words(message: str) -> str:
    r"""Return a message with the names of operators and arguments for a task or a page of Airflow.

    A command without an operator, or with an option that no operator has, stays: a person runs it in a shell.

    Example:
        >>> airflow_words('no such folder; run "deepspark ingest" first, or give its --output')
        'no such folder; run DeepSparkIngestOperator first, or give its output'
    """
    return _COMMAND_OR_OPTION.sub(_in_airflow, message)


def _in_airflow(match: re.Match[str]) -> str:
    operators, arguments = _names()
    if (option := match["option"]) in arguments:
        return "=".join(filter(None, (arguments[option], match["value"])))
    options = _OPTION.findall(match["rest"] or "")
    if match["command"] not in operators or not arguments.keys() >= set(options):
        return match[0]
    return " with ".join(filter(None, (operators[match["command"]], " and ".join(arguments[name] for name in options))))


@cache
def _names() -> tuple[dict[str, str], dict[str, str]]:
    """Return command -> operator, and option without its dashes -> argument of an operator."""
    from deepspark_ops import operators  # imported here: the operators import this module

    classes = {name: getattr(operators, name) for name in vars(operators)["__all__"] if name.endswith("Operator")}
    names = {name for operator_class in classes.values() for name in inspect.signature(operator_class).parameters}
    arguments = {name.replace("_", "-"): name for name in names}
    return {operator_class.stage: name for name, operator_class in classes.items()}, arguments | {"run-dir": "run"}
