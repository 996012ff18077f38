"""A small net and small data: the whole pipeline runs in seconds on 8x8 digits with one hidden layer."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.paths import ROOT

DIGITS = ROOT / "examples" / "digits"
IMAGES, LABELS = "digits8x8-images-idx3-ubyte.gz", "digits8x8-labels-idx1-ubyte.gz"

NET = """
name: "{name}"
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "none/train" backend: LMDB batch_size: 32 }} }}
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "none/test" backend: LMDB batch_size: 90 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param {{ num_output: 32 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""
IMAGES_HEADER, LABELS_HEADER = 16, 8
"""Bytes of an IDX file before the first pixel, and before the first label."""
LAYERS = NET.index('layer {{ name: "ip1"')
AUTOENCODER = (
    NET[:LAYERS]
    + """
layer {{ name: "flat" type: "Flatten" bottom: "data" top: "flat" }}
layer {{ name: "code" type: "InnerProduct" bottom: "flat" top: "code"
  inner_product_param {{ num_output: 12 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "again" type: "InnerProduct" bottom: "code" top: "again"
  inner_product_param {{ num_output: 64 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "again" bottom: "flat" top: "loss" }}
"""
)
"""A net without classes: 64 pixels through 12 numbers and back."""
SOLVER = """
net: "{net}" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 200 display: 50 random_seed: 1
test_iter: 4 test_interval: 100 snapshot: 100 snapshot_prefix: "small"
"""
FORMATS = "saved_model,caffe"
"""What every bundle has; each other one takes seconds to write and read again. The scheduled run of deepspark_retrain,
whose form has no formats, has them all."""


@dataclass(frozen=True)
class SmallExample:
    """A solver, a net and data in a folder of their own.

    Attributes:
        folder: Holds them.
        name: Of the net, by which a list of runs shows it.
        net: Text of the net, with a place for its name.
    """

    folder: Path
    name: str = "small"
    net: str = NET

    def write(self) -> SmallExample:
        """Write all files. The data are a copy: a dataset belongs to a source, so no other run makes or changes the
        dataset.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        net = self.folder / "small.prototxt"
        net.write_text(self.net.format(name=self.name))
        (self.folder / "small_solver.prototxt").write_text(SOLVER.format(net=net))
        for file in (IMAGES, LABELS):
            shutil.copy(DIGITS / file, self.folder)
        return self

    def conf(self, **changes: Any) -> dict[str, Any]:
        """Return the parameters of a run with a separate dataset."""
        return {
            "solver": str(self.folder / "small_solver.prototxt"),
            "source": str(self.folder / IMAGES),
            "max_pixel": 16,
        } | changes

    def change_a_pixel(self) -> None:
        """Let the first picture differ: the data are others now."""
        path = self.folder / IMAGES
        content = bytearray(gzip.decompress(path.read_bytes()))
        content[IMAGES_HEADER] ^= 1
        path.write_bytes(gzip.compress(bytes(content)))

    def replace_source(self, split: str, source: Path) -> None:
        """Let the net name a real source of its own."""
        net = self.folder / "small.prototxt"
        net.write_text(net.read_text().replace(f"none/{split}", str(source)))
