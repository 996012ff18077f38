"""Python layers: found by module and name, computed by their class, refused with the way out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.errors import NetError
from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.net.python_layers import PythonBlob, allow_python_modules, python_layer
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.layer_check import check_layer, define, refusal, run_layer, spread_values

pytestmark = pytest.mark.tf

PREFIX = 'layer "layer" (Python): '


@pytest.fixture(autouse=True)
def _every_module_may_be_imported() -> None:
    allow_python_modules(None)


def python_layer_text(layer: str, param_str: str = "", module: str = "tests_of_python", tops: str = 'top: "n0"') -> str:
    return f'{tops} type: "Python" python_param {{ module: "{module}" layer: "{layer}" param_str: "{param_str}" }}'


@python_layer(module="tests_of_python", name="Blend")
class Blend:
    """Tops: share x0 + (1 - share) x1, and the squares of x0 with twice the channels."""

    def setup(self, param_str: str, bottom_shapes: tuple[tuple[int, ...], ...]) -> None:
        if bottom_shapes[0] != bottom_shapes[1]:
            msg = f"bottoms of shapes {bottom_shapes[0]} and {bottom_shapes[1]} cannot be blended"
            raise ValueError(msg)
        self.share = float(param_str)

    def reshape(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Sequence[tuple[int, ...]]:
        n, c, *spatial = bottom_shapes[0]
        return [bottom_shapes[0], (n, 2 * c, *spatial)]

    def forward(self, bottoms: Sequence[Any], *, is_training: bool) -> Sequence[Any]:
        import tensorflow as tf

        assert is_training
        x, y = bottoms
        return [self.share * x + (1 - self.share) * y, tf.concat([tf.square(x)] * 2, axis=1)]


@python_layer(module="tests_of_python", name="Answer")
class Answer:
    """Returns in ``reshape`` and in ``forward`` what its param_str says."""

    def setup(self, param_str: str, bottom_shapes: tuple[tuple[int, ...], ...]) -> None:
        self.shapes, self.tops = {
            "no list": (3, []),
            "too few": ([(2, 3)], []),
            "other shape": ([(2, 3)], [np.zeros((3, 2))]),
            "whole numbers": ([(2, 3)], [np.ones((2, 3), np.int64)]),
        }[param_str]

    def reshape(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Any:
        return self.shapes

    def forward(self, bottoms: Sequence[Any], *, is_training: bool) -> Sequence[Any]:
        return self.tops


@pytest.mark.parametrize("channels_last", [False, True])
def test_values_and_gradients_are_those_of_its_operations(channels_last: bool) -> None:
    check_layer(
        python_layer_text("Blend", "0.25", tops='top: "n0" top: "n1"'),
        lambda x, y: [0.25 * x + 0.75 * y, np.concatenate([x**2, x**2], axis=1)],
        [spread_values(2, 3, 2, 2), spread_values(2, 3, 2, 2, seed=1)],
        channels_last=channels_last,
    )


def test_its_own_refusal_names_the_layer() -> None:
    assert refusal(python_layer_text("Blend", "1", tops='top: "n0" top: "n1"'), (2, 3), (2, 4)) == (
        f"{PREFIX}bottoms of shapes (2, 3) and (2, 4) cannot be blended"
    )


def test_number_of_tops_is_checked() -> None:
    assert refusal(python_layer_text("Blend", "1"), (2, 3), (2, 3)) == f"{PREFIX}makes 2 tops, the file names 1"


def test_reshape_must_return_shapes() -> None:
    finding = "reshape returned 3; expected one shape per top, such as [(2, 3)]"
    assert refusal(python_layer_text("Answer", "no list"), (2, 3)) == PREFIX + finding


@pytest.mark.parametrize(("case", "finding"), [("too few", "nothing"), ("other shape", "(3, 2)")])
def test_forward_must_return_what_reshape_announced(case: str, finding: str) -> None:
    with pytest.raises(NetError) as caught:
        run_layer(python_layer_text("Answer", case), [np.zeros((2, 3))])
    assert str(caught.value) == f"{PREFIX}forward returned {finding}; reshape announced (2, 3)"


def test_tops_become_float32() -> None:
    run = run_layer(python_layer_text("Answer", "whole numbers"), [np.zeros((2, 3))])
    assert run.tops[0].dtype == np.float32
    np.testing.assert_array_equal(run.tops[0], np.ones((2, 3)))


def test_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from caffe_import.net.python_layers import python_layer

@python_layer(module="layers_in_a_file", name="Keep")
class Keep:
    def setup(self, param_str, bottom_shapes):
        pass

    def reshape(self, bottom_shapes):
        return bottom_shapes

    def forward(self, bottoms, *, is_training):
        return bottoms
"""
    (tmp_path / "layers_in_a_file.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert define(python_layer_text("Keep", module="layers_in_a_file"), (2, 3)).top_shapes == ((2, 3),)
    assert refusal(python_layer_text("keep", module="layers_in_a_file"), (2, 3)).startswith(
        f'{PREFIX}module "layers_in_a_file" registers no layer "keep"; registered: Keep; did you mean "Keep"?'
    )


def test_unknown_module_is_refused_with_the_way_out() -> None:
    finding = (
        "module \"no_such_roi\" cannot be imported (No module named 'no_such_roi'); "
        "put its folder on PYTHONPATH, for every worker"
    )
    assert refusal(python_layer_text("RoiLayer", module="no_such_roi"), (2, 3)) == PREFIX + finding


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("import no_such_caffe\n", "ModuleNotFoundError: No module named 'no_such_caffe' ({file}:1); "),
        ("\nraise KeyError('mean')\n", "KeyError: 'mean' ({file}:2); "),
        ("print 'python 2'\n", "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)? "),
    ],
    ids=["needs another", "raises", "python 2"],
)
def test_module_that_fails_is_one_message_with_its_line(
    code: str, finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "layers_that_fail.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    message = refusal(python_layer_text("A", module="layers_that_fail"), (2, 3))
    assert message.startswith(f'{PREFIX}module "layers_that_fail" cannot be imported: {finding.format(file=file)}')
    assert message.endswith("; it runs without pycaffe and in Python 3 (docs/guides/own_layer.md)")


@pytest.mark.parametrize("method", ["__init__", "setup", "reshape", "forward"])
def test_class_that_fails_is_one_message_with_its_line(method: str) -> None:
    def fail(self: object, *_: object, **__: object) -> None:
        raise KeyError("mean")

    methods = {"setup": lambda *_: None, "reshape": lambda _, shapes: shapes, "forward": lambda _, x, **__: x}
    name = f"Fails in {method}"
    python_layer(module="tests_of_faults", name=name)(type(name, (), {**methods, method: fail}))
    with pytest.raises(NetError) as caught:
        run_layer(python_layer_text(name, module="tests_of_faults"), [np.zeros((2, 3))])
    line = fail.__code__.co_firstlineno + 1
    begin = "forward fails: " if method == "forward" else ""
    assert str(caught.value) == f"{PREFIX}{begin}KeyError: 'mean' ({__file__}:{line})"


def test_unknown_class_is_refused_with_those_known() -> None:
    finding = (
        'module "tests_of_python" registers no layer "Blendd"; registered: Affine, Answer, Blend; did you mean '
        '"Blend"?; decorate its class with @python_layer(module=..., name=...) of caffe_import.net.python_layers'
    )
    assert refusal(python_layer_text("Blendd"), (2, 3)) == PREFIX + finding


@pytest.mark.parametrize("module", ["", ".relative", "a b", "a..b"])
def test_names_that_no_module_has_are_refused(module: str) -> None:
    assert (
        refusal(python_layer_text("A", module=module), (2, 3))
        == f'{PREFIX}python_param.module="{module}" is no name of a module'
    )


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r'^Python layer "Blend" of module "tests_of_python" is registered twice$'):
        python_layer(module="tests_of_python", name="Blend")(Answer)
    assert python_layer(module="tests_of_python", name="Blend")(Blend) is Blend


def test_a_class_without_forward_is_refused() -> None:
    class Half:
        def setup(self, param_str: str, bottom_shapes: object) -> None: ...

    expected = r'^Python layer "Half" of module "tests_of_python": the class has no method reshape, forward$'
    with pytest.raises(TypeError, match=expected):
        python_layer(module="tests_of_python", name="Half")(Half)  # type: ignore[type-var]


def test_a_class_in_pycaffes_form_is_told_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pycaffe_form.py").write_text(
        "from caffe_import.net.python_layers import python_layer\n"
        "@python_layer(module='pycaffe_form', name='Half')\n"
        "class Half:\n"
        "    def setup(self, bottom, top): ...\n"
        "    def reshape(self, bottom, top): ...\n"
        "    def forward(self, bottom, top): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal(python_layer_text("Half", module="pycaffe_form"), (2, 3)) == (
        f'{PREFIX}Python layer "Half" of module "pycaffe_form": reshape(self, bottom, top) is not what is called here:'
        " def reshape(self, bottom_shapes), which returns what it makes where pycaffe's writes into top;"
        " see caffe_import.net.python_layers"
    )


@python_layer(module="tests_of_python", name="Affine")
class Affine:
    """y = a x + b, one number each per channel, as a pycaffe layer with two blobs."""

    def setup(self, param_str: str, bottom_shapes: tuple[tuple[int, ...], ...]) -> None:
        self.filler = param_str

    def reshape(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Sequence[tuple[int, ...]]:
        return bottom_shapes

    def blobs(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Sequence[PythonBlob]:
        n_channels = bottom_shapes[0][1]
        return [PythonBlob((n_channels,), self.filler or "value: 2"), PythonBlob((n_channels,))]

    def forward(self, bottoms: Sequence[Any], *, is_training: bool, blobs: Sequence[Any]) -> Sequence[Any]:
        scale, shift = blobs
        return [bottoms[0] * scale + shift]


def test_a_layer_with_blobs_has_the_gradients_of_its_operations() -> None:
    check_layer(
        python_layer_text("Affine"),
        lambda x, a, b: [x * a + b],
        [spread_values(4, 3)],
        [spread_values(3, seed=1), spread_values(3, seed=2)],
    )


def test_blobs_in_place_are_filled_trained_saved_and_frozen_like_others(tmp_path: Path) -> None:
    net = build_net_spec(
        parse_net(
            """
            layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 } } }
            layer { name: "affine" type: "Python" bottom: "data" top: "data" param { lr_mult: 1 } param { lr_mult: 0 }
              python_param { module: "tests_of_python" layer: "Affine" } }
            layer { name: "loss" type: "Reduction" bottom: "data" top: "loss" loss_weight: 1 }
            """
        ),
        phase="TRAIN",
    )
    start = initial_vector(net, 1)
    assert start.tolist() == [2, 2, 2, 0, 0, 0]
    solver = solver_spec(parse_solver('base_lr: 0.5 lr_policy: "fixed" max_iter: 9'))
    function = compile_training(net, solver, n_threads=1)
    data = spread_values(1, 4, 3).astype(np.float32)
    state, _ = function.run(
        function.initial_state(start), step=0, n_steps=1, rate_scale=1, seed=0, worker=0, feeds={"data": data}
    )
    trained = np.array(state.params_view())
    np.testing.assert_allclose(trained, [*(2 - 0.5 * data[0].sum(axis=0)), 0, 0, 0], rtol=1e-5)
    write_caffemodel(tmp_path / "a.caffemodel", net, trained)
    loaded = np.zeros(6, np.float32)
    copy_weights(net, loaded, read_caffemodel(tmp_path / "a.caffemodel"), where="a")
    np.testing.assert_array_equal(loaded, trained)


def test_a_filler_that_is_none_is_refused() -> None:
    assert refusal(python_layer_text("Affine", "tipe: 1"), (2, 3)).startswith(
        f"{PREFIX}the filler 'tipe: 1' of a blob is no FillerParameter: "
    )
