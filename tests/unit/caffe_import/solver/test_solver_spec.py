"""Solver definitions: what is read, what Caffe's Solver would refuse."""

from __future__ import annotations

import pytest

from caffe_import.errors import PrototxtError
from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import SolverSpec, solver_spec

BASE = 'base_lr: 0.5 max_iter: 10 lr_policy: "fixed" '


def spec_of(text: str) -> SolverSpec:
    return solver_spec(parse_solver(text), path="s.prototxt")


def without(field: str) -> str:
    return " ".join(part for part in BASE.replace(": ", ":").split() if not part.startswith(field)).replace(":", ": ")


class TestValues:
    def test_defaults_are_caffes(self) -> None:
        spec = spec_of(BASE)
        assert (spec.type, spec.momentum, spec.iter_size, spec.average_loss) == ("SGD", 0, 1, 1)
        assert (spec.regularization_type, spec.clip_gradients, spec.random_seed) == ("L2", -1, -1)
        assert (spec.snapshot, spec.snapshot_format, spec.snapshot_after_train) == (0, "BINARYPROTO", True)
        assert (spec.test_iter, spec.test_interval, spec.test_initialization) == ((), 0, True)
        assert spec.delta == pytest.approx(1e-8)
        assert (spec.momentum2, spec.rms_decay) == pytest.approx((0.999, 0.99))

    def test_given_values_arrive(self) -> None:
        spec = spec_of(
            'base_lr: 0.25 max_iter: 7 lr_policy: "multistep" gamma: 0.5 stepvalue: 2 stepvalue: 4 type: "Nesterov" '
            'momentum: 0.75 weight_decay: 0.5 regularization_type: "L1" iter_size: 3 snapshot: 2 snapshot_prefix: "p" '
            "snapshot_format: HDF5 random_seed: 42 clip_gradients: 8 display: 1 average_loss: 5 debug_info: true"
        )
        assert (spec.base_lr, spec.max_iter, spec.lr_policy, spec.gamma) == (0.25, 7, "multistep", 0.5)
        assert (spec.stepvalue, spec.type, spec.momentum, spec.weight_decay) == ((2, 4), "Nesterov", 0.75, 0.5)
        assert (spec.regularization_type, spec.iter_size, spec.snapshot, spec.snapshot_prefix) == ("L1", 3, 2, "p")
        assert (spec.snapshot_format, spec.random_seed, spec.clip_gradients) == ("HDF5", 42, 8)
        assert (spec.display, spec.average_loss, spec.debug_info) == (1, 5, True)

    def test_floats_are_float32_values(self) -> None:
        assert spec_of(BASE.replace("0.5", "0.1")).base_lr == 0.10000000149011612

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (without("base_lr"), "base_lr is not given"),
            (without("max_iter"), "max_iter is not given"),
            (without("lr_policy"), "lr_policy is not given"),
            (BASE + 'type: "Sgd"', 'RMSProp, AdaDelta, Adam; did you mean "SGD"?'),
            (BASE.replace("fixed", "stp"), 'multistep, poly, sigmoid; did you mean "step"?'),
            (BASE.replace("fixed", "step") + "gamma: 0.1", 'stepsize is not given; lr_policy "step" needs it'),
            (BASE.replace("fixed", "step") + "stepsize: 1", 'gamma is not given; lr_policy "step" needs it'),
            (BASE.replace("fixed", "step") + "stepsize: 0 gamma: 1", 'stepsize=0; allowed: 1 or more;'),
            (BASE.replace("fixed", "exp"), 'gamma is not given; lr_policy "exp" needs it'),
            (BASE.replace("fixed", "inv") + "gamma: 1", 'power is not given; lr_policy "inv" needs it'),
            (BASE.replace("fixed", "multistep") + "stepvalue: 3", 'gamma is not given; lr_policy "multistep" needs it'),
            (BASE.replace("fixed", "poly"), 'power is not given; lr_policy "poly" needs it'),
            (BASE.replace("fixed", "poly").replace("10", "0") + "power: 1", 'max_iter=0; allowed: 1 or more;'),
            (BASE.replace("fixed", "exp") + "gamma: -1", 'gamma=-1; allowed: 0 or more for lr_policy "exp"'),
            (BASE + "iter_size: 0", "iter_size=0; allowed: 1 or more"),
            (BASE + "average_loss: 0", "average_loss=0; allowed: 1 or more"),
            (BASE + "test_iter: 3 test_iter: -1", "test_iter=-1; allowed: 0 or more"),
            (BASE + "snapshot: -1", "snapshot=-1; allowed: 0 or more"),
            (BASE + "momentum: nan", "momentum=nan; allowed: a finite number"),
            (BASE.replace("0.5", "inf"), "base_lr=inf; allowed: a finite number"),
            (BASE + 'regularization_type: "L3"', 'regularization_type is "L3"; allowed: L1, L2'),
            (BASE + 'type: "AdaGrad" momentum: 0.5', "momentum=0.5; AdaGrad has no momentum; allowed: 0"),
            (BASE + 'type: "RMSProp" momentum: 0.5', "momentum=0.5; RMSProp has no momentum; allowed: 0"),
            (BASE + 'type: "RMSProp" rms_decay: 1', "rms_decay=1; allowed: 0 or more and below 1"),
            (BASE + 'type: "Adam" momentum: 1', "momentum=1; allowed: 0 or more and below 1 for Adam"),
            (BASE + 'type: "Adam" momentum2: 1', "momentum2=1; allowed: 0 or more and below 1 for Adam"),
        ],
    )  # fmt: skip
    def test_refused(self, text: str, message: str) -> None:
        with pytest.raises(PrototxtError) as caught:
            spec_of(text)
        assert str(caught.value).startswith("s.prototxt: ")
        assert message in str(caught.value)
