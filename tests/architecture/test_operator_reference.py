"""The operators' stub file and reference are what the config models say."""

from __future__ import annotations

import ast
import inspect

import pytest

from docs.generate import operators

pytestmark = pytest.mark.airflow


def test_the_stub_is_what_the_operators_take() -> None:
    text = operators.stub()
    named = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    for kind in operators.classes():
        (constructor,) = (node for node in named[kind.__name__].body if isinstance(node, ast.FunctionDef))
        arguments = {argument.arg for argument in constructor.args.kwonlyargs} - {"task_id"}
        parameter_names = {
            parameter.name for parameter in inspect.signature(kind.__init__).parameters.values() if parameter.kind == 3
        }
        assert parameter_names <= arguments <= parameter_names | {"conn_id"}


def test_every_argument_in_the_reference_is_described() -> None:
    assert " |  |" not in operators.page()
