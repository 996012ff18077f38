"""The operators' stub file and reference are what the config models say."""

from __future__ import annotations

import ast
import inspect

import pytest

from tests.architecture.test_readme import load_script

pytestmark = pytest.mark.airflow


def test_the_stub_is_what_the_operators_take() -> None:
    script = load_script("operator_reference")
    text = script.STUB.read_text(encoding="utf-8")
    assert text == script.stub(), "operators/__init__.pyi is out of date; run: make format"
    named = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    for kind in script.classes():
        (constructor,) = (node for node in named[kind.__name__].body if isinstance(node, ast.FunctionDef))
        arguments = {one.arg for one in constructor.args.kwonlyargs} - {"task_id"}
        taken = {one.name for one in inspect.signature(kind.__init__).parameters.values() if one.kind == 3}
        assert taken <= arguments <= taken | {"conn_id"}


def test_every_argument_in_the_reference_is_described() -> None:
    script = load_script("operator_reference")
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.updated(page), "docs/operators.md is out of date; run: make format"
    assert " |  |" not in script.reference()
