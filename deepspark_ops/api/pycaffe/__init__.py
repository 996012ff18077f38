"""pycaffe's names, for notebooks of Caffe with changed imports: ``import deepspark_ops.api.pycaffe as caffe``.

docs/guides/python.md says what differs from pycaffe.
"""

from __future__ import annotations

from caffe_import.proto import caffe_pb2
from deepspark_ops.api.pycaffe import io, proto
from deepspark_ops.api.pycaffe.defaults import DEFAULTS
from deepspark_ops.api.pycaffe.net import TEST, TRAIN, Net
from deepspark_ops.api.pycaffe.net_spec import Layers, NetSpec, Parameters, to_proto
from deepspark_ops.api.pycaffe.solver import Solver

layers = Layers()
params = Parameters()
SGDSolver = NesterovSolver = AdaGradSolver = RMSPropSolver = AdaDeltaSolver = AdamSolver = get_solver = Solver

__all__ = [
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "caffe_pb2",
    "get_solver",
    "io",
    "layers",
    "params",
    "proto",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_random_seed",
    "to_proto",
]


def set_mode_cpu() -> None:
    """Compute new nets by the CPU."""
    DEFAULTS.devices = "cpu"


def set_mode_gpu() -> None:
    """Compute new nets by the first GPU."""
    DEFAULTS.devices = "gpu"


def set_random_seed(seed: int) -> None:
    """Fix the random numbers of fillers and layers of new nets."""
    DEFAULTS.seed_from(seed)


def set_device(device: int) -> None:
    """Do nothing: CUDA_VISIBLE_DEVICES names the first GPU."""
