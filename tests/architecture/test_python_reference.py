"""What is generated of the Python API is what the config models say now."""

from __future__ import annotations

from tests.architecture.test_readme import load_script


def test_stub_has_the_arguments_of_the_config_models() -> None:
    script = load_script("python_reference")
    assert script.STUB.read_text(encoding="utf-8") == script.stub(), "calls.pyi is out of date; run: make format"


def test_reference_of_the_docs_is_the_code_s() -> None:
    script = load_script("python_reference")
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.BEGIN in page
    assert script.updated(page) == page, "docs/python.md is out of date; run: make format"


def test_every_argument_and_member_is_described() -> None:
    script = load_script("python_reference")
    assert "| `" in script.reference()
    for row in script.reference().splitlines():
        assert not row.endswith("` |  |"), row
