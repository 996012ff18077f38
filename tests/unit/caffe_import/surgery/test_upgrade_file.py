"""Old files written anew, against the texts of Caffe's tools and the parameters that Caffe loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from caffe_import.errors import CaffeImportError
from caffe_import.files.caffemodel import copy_weights, read_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2
from caffe_import.surgery.upgrade_file import upgrade_file
from tests.paths import FIXTURES

FILES = FIXTURES / "caffe" / "files"
UPGRADE = FIXTURES / "caffe" / "upgrade"
UPGRADED = sorted(UPGRADE.glob("*.upgraded.prototxt"))


@pytest.mark.parametrize("upgraded", UPGRADED, ids=lambda path: path.stem)
def test_an_upgraded_text_equals_the_output_of_caffes_tool(upgraded: Path, tmp_path: Path) -> None:
    name = upgraded.name.replace(".upgraded", "")
    source = next(path for path in (UPGRADE / name, FIXTURES / "caffe" / "nets" / name) if path.exists())
    upgraded_file = upgrade_file(source, tmp_path / "new.prototxt")
    is_solver = name.startswith("solver")
    assert upgraded_file.kind == ("solver" if is_solver else "net")
    assert bool(upgraded_file.steps) == (not name.startswith("current"))
    message = caffe_pb2.SolverParameter() if is_solver else caffe_pb2.NetParameter()
    expected = type(message)()
    text_format.Parse(upgraded.read_text(), expected)
    assert text_format.Parse((tmp_path / "new.prototxt").read_text(), message) == expected
    assert upgrade_file(tmp_path / "new.prototxt", tmp_path / "again.prototxt").steps == ()
    assert (tmp_path / "again.prototxt").read_text() == (tmp_path / "new.prototxt").read_text()


@pytest.mark.parametrize("name", ["v0_legacy", "v1_legacy", "current", "double_extra_layer"])
@pytest.mark.parametrize("suffix", [".caffemodel", ".caffemodel.h5"])
def test_weights_are_those_that_caffe_had_after_loading(name: str, suffix: str, tmp_path: Path) -> None:
    output = tmp_path / f"new{suffix}"
    upgraded = upgrade_file(FILES / f"{name}.caffemodel", output)
    assert upgraded.kind == "weights"
    assert bool(upgraded.steps) == ("legacy" in name)
    recorded = np.load(FILES / f"{name}.caffemodel.npz")
    net = build_net_spec(read_net(FILES / "model_net.prototxt"), phase="TEST")
    vector = np.full(net.params.n_params, 0.25, np.float32)
    copy_weights(net, vector, read_caffemodel(output), where="new")
    for entry in net.params.entries:
        values = vector[entry.offset : entry.stop].reshape(entry.shape)
        np.testing.assert_array_equal(values, recorded[f"param/{entry.layer}/{entry.index}"])
    if suffix == ".caffemodel":
        written = caffe_pb2.NetParameter.FromString(output.read_bytes())
        assert not written.layers
        assert {layer.type for layer in written.layer} >= {"Convolution", "InnerProduct"}


def test_what_a_shared_blob_in_hdf5_lacks_the_binary_form_needs(tmp_path: Path) -> None:
    source = FILES / "shared_net.caffemodel.h5"
    upgrade_file(source, tmp_path / "new.caffemodel.h5")
    for name, blobs in read_caffemodel(source).items():
        for blob, other in zip(blobs, read_caffemodel(tmp_path / "new.caffemodel.h5")[name], strict=True):
            np.testing.assert_array_equal(blob, other)


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02 nothing", b"layer { name: 1 "])
def test_other_files_are_refused_without_output(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "broken"
    source.write_bytes(content)
    with pytest.raises(CaffeImportError, match=str(source)):
        upgrade_file(source, tmp_path / "new")
    assert not (tmp_path / "new").exists()
