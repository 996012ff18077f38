"""Each step of the recipes in CONTRIBUTING.md was taken, for every layer type, strategy, source format and stage.

A failure names the step. Needs no TensorFlow: emitters, memory gradients and Keras forms are looked up in their files;
``test_registries.py`` compares the registries themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from caffe_import.net.layer_registry import registered_types
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS, TABLE_FORMATS
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from tests.fuzz.corpus.table import READERS
from tests.paths import ROOT
from tests.reference.example_sources import EXAMPLE_SOURCES
from tests.reference.slow_strategies import AT_EACH_PUSH, IN_ROUNDS, LINE_SEARCHES
from tests.unit.deepspark_ops.exchange.test_whole_exchange import ONE_PUSH_MOVES

TYPES = registered_types()
FED_FROM_OUTSIDE = {"Data", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData"}
LAYER_TEST_FAMILIES = {
    **dict.fromkeys(sorted(FED_FROM_OUTSIDE | {"DummyData", "HDF5Output"}), "data_layers"),
    **dict.fromkeys(("LSTM", "LSTMUnit", "RNN"), "recurrent"),
    "Bias": "scale",
    "PReLU": "activations",
}
"""Layer type -> its test file, where several types are tested by one table or by one loop."""
SECOND_NAMES = {"ConvolutionDepthwise": "DepthwiseConvolution"}
NOT_FUZZED = {"class_folders", *TABLE_FORMATS}
"""A folder of images has no bytes of its own; tables are read by pyarrow, fastavro and Spark."""
STAGES = sorted(
    path.stem
    for path in (ROOT / "deepspark_ops" / "operators").glob("*.py")
    if (ROOT / "deepspark_ops" / "config" / path.name).is_file() and path.stem != "__init__"
)


@cache
def text_of(*patterns: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))


def stem_of(type_name: str) -> str:
    """Return the name of the type's files without underscores: ``SoftmaxWithLoss`` -> ``softmaxwithloss``."""
    stem = TYPES[type_name].define.__module__.rpartition(".")[2]
    assert stem == "activations" or stem.replace("_", "") == SECOND_NAMES.get(type_name, type_name).lower(), (
        f"step 2: {type_name} is defined in layers/{stem}.py; a type has a file of its name, or is in activations.py"
    )
    return stem


def named_in(texts: str, names: Iterable[str]) -> set[str]:
    """Return the names that stand in the texts between quotes or backquotes."""
    return {name for name in names if re.search(rf"""["'`]{re.escape(name)}["'`]""", texts)}


@pytest.mark.parametrize("type_name", TYPES)
def test_layer_has_an_emitter_in_the_file_of_the_same_name(type_name: str) -> None:
    path = f"caffe_import/tf_graph/layers/{stem_of(type_name)}.py"
    if type_name not in FED_FROM_OUTSIDE:
        assert named_in(text_of(path), [type_name]), f'step 3: {path} has no @emitter("{type_name}")'


@pytest.mark.parametrize("type_name", [name for name, kind in TYPES.items() if kind.traits.reads_overwritten])
def test_layer_that_reads_overwritten_memory_has_a_memory_gradient(type_name: str) -> None:
    path = f"caffe_import/tf_graph/layers/{stem_of(type_name)}.py"
    assert f'@memory_gradient("{type_name}"' in text_of(path), f"step 3: {path} has no memory gradient of {type_name}"


@pytest.mark.parametrize("type_name", TYPES)
def test_layer_is_compared_with_a_reference(type_name: str) -> None:
    stem = LAYER_TEST_FAMILIES.get(type_name) or TYPES[type_name].define.__module__.rpartition(".")[2]
    path = f"tests/unit/caffe_import/layers/test_{stem}.py"
    text = text_of(path)
    is_tested = f'type: "{type_name}"' in text or named_in(text, [type_name])
    assert is_tested, f"step 4: {path} does not test {type_name}"


@pytest.mark.parametrize("type_name", [name for name, kind in TYPES.items() if kind.in_place and name != "Python"])
def test_layer_that_works_in_place_is_tested_in_place(type_name: str) -> None:
    path = "tests/unit/caffe_import/tf_graph/passes/test_in_place.py"
    assert named_in(text_of(path), [type_name]), f"step 4: {path} does not test {type_name}"


@pytest.mark.parametrize("type_name", [name for name, kind in TYPES.items() if kind.traits.arithmetic != "float32"])
def test_layer_in_16_bits_is_tested_in_16_bits(type_name: str) -> None:
    path = "tests/unit/caffe_import/tf_graph/passes/test_precision.py"
    assert named_in(text_of(path), [type_name]), f"step 4: {path} does not test {type_name}"


@pytest.mark.parametrize("type_name", TYPES)
def test_layer_has_a_tested_keras_form_or_a_reason(type_name: str) -> None:
    forms = text_of("deepspark_ops/export/formats/keras_layers/*.py")
    has_form = bool(named_in(forms, [type_name]))
    assert has_form == (TYPES[type_name].no_keras_form is None), (
        f"step 5: {type_name} needs a @keras_form in deepspark_ops/export/formats/keras_layers/,"
        " or @layer_type(..., no_keras_form=WHY), and not both"
    )
    tests = text_of("tests/parity/test_keras_forms.py", "tests/unit/deepspark_ops/export/formats/*.py")
    assert not has_form or type_name in tests, f"step 5: no test compares the Keras form of {type_name}"


@pytest.mark.parametrize("type_name", TYPES)
def test_layer_stands_in_the_page_of_layers(type_name: str) -> None:
    page = "docs/reference/layers.md"
    assert f"\n| `{type_name}` |" in text_of(page), f"step 7: {page} lacks {type_name}; run: make format"


def first_cells(page: str) -> str:
    """Return the first cells of the page's tables, a line each."""
    return "\n".join(line.split("|")[1] for line in text_of(page).splitlines() if line.startswith("| "))


@pytest.mark.parametrize("name", strategy_names())
def test_strategy_took_every_step(name: str) -> None:
    stem = type(find_strategy(name)).__module__.rpartition(".")[2]
    test_file = f"tests/unit/deepspark_ops/exchange/strategies/test_{stem}.py"
    assert name in {*AT_EACH_PUSH, *IN_ROUNDS, *LINE_SEARCHES}, (
        f"step 2: {name} has no slow reference in AT_EACH_PUSH or IN_ROUNDS of tests/reference/slow_strategies.py"
    )
    assert name in ONE_PUSH_MOVES, f"step 3: ONE_PUSH_MOVES of test_whole_exchange.py has no line for {name}"
    assert named_in(text_of(test_file), [find_strategy(name).name]), f"step 3: no {test_file} tests {name}"
    page = "docs/concepts/exchange.md"
    assert f"`{name}`" in first_cells(page), f"step 4: the table of strategies in {page} lacks {name}"


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_source_format_took_every_step(name: str) -> None:
    module = Path("deepspark_ops", "ingest", "sources", f"{'tables' if name in TABLE_FORMATS else name}.py")
    test_file = f"tests/unit/deepspark_ops/ingest/sources/test_{name}.py"
    assert (ROOT / module).is_file(), f"step 2: {name} has no {module}"
    uses = (f"from {'.'.join(module.with_suffix('').parts)} import", f'partial(index_of, "{name}")')
    is_tested = any(use in text_of(test_file) for use in uses)
    assert name in TABLE_FORMATS or is_tested, f"step 3: no {test_file} uses {module}"
    assert name in EXAMPLE_SOURCES, f"step 3: EXAMPLE_SOURCES of tests/reference/example_sources.py lacks {name}"
    fuzzed = {reader.source_format for reader in READERS.values()}
    assert name in fuzzed | NOT_FUZZED, f'step 4: no Reader of tests/fuzz/corpus/ has source_format="{name}"'
    page = "docs/guides/data.md"
    assert f"`{name}`" in first_cells(page), f"step 5: the table of sources in {page} lacks {name}"


def test_what_is_fuzzed_is_a_format() -> None:
    assert {reader.source_format for reader in READERS.values()} - {""} == set(SOURCE_FORMATS) - NOT_FUZZED


@pytest.mark.parametrize("name", STAGES)
def test_stage_took_every_step(name: str) -> None:
    assert f"| {name} | `operators/{name}.py` |" in text_of("docs/architecture.md"), (
        f"step 6: the table of stages in docs/architecture.md lacks {name}"
    )
