"""Every layer type has an emitter, and a Keras form or a reason for its absence.

``test_recipes.py`` says which step of a recipe is missing.
"""

from __future__ import annotations

import pytest

from caffe_import.net.layer_registry import registered_types
from tests.architecture.test_recipes import FED_FROM_OUTSIDE, stem_of

pytestmark = pytest.mark.tf


def test_every_type_that_computes_has_an_emitter_and_the_other_way_round() -> None:
    from caffe_import.tf_graph.emitters import registered_emitters

    emitters = registered_emitters()
    assert set(emitters) == set(registered_types()) - FED_FROM_OUTSIDE
    for name, emit in emitters.items():
        assert emit.__module__ == f"caffe_import.tf_graph.layers.{stem_of(name)}"


def test_every_type_with_a_memory_gradient_says_so() -> None:
    from caffe_import.tf_graph.passes.in_place import types_with_memory_gradient

    reads = {name for name, kind in registered_types().items() if kind.traits.reads_overwritten}
    assert types_with_memory_gradient() == reads


def test_every_type_has_a_keras_form_or_says_why_not() -> None:
    from deepspark_ops.export.formats.keras_layers.registry import registered_forms

    without = {name for name, kind in registered_types().items() if kind.no_keras_form}
    assert set(registered_forms()) == set(registered_types()) - without
