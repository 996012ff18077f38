"""Weights files: every generation read like Caffe, written byte for byte like Caffe."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caffe_import.errors import WeightsError
from caffe_import.files import binary_file
from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"
FILES = CAFFE / "files"


def solver_samples(layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
    """Shapes of one sample of each top in the recorded solvers' HDF5 files."""
    image: Shape = (1, 8, 8) if "conv" in layer.hdf5_data_param.source else (6,)
    return tuple(image if top.startswith("data") else () for top in layer.top)


def net_in_file(path: Path, phase: str = "TEST") -> NetSpec:
    return build_net_spec(read_net(path), phase="TRAIN" if phase == "TRAIN" else "TEST", sample_shapes=solver_samples)


def copied_vector(net: NetSpec, path: Path) -> Vector:
    vector = np.full(net.params.n_params, 0.25, np.float32)
    copy_weights(net, vector, read_caffemodel(path), where=path.name)
    return vector


class TestReadingAsCaffe:
    @pytest.mark.parametrize(
        "name",
        [
            "current.caffemodel",
            "current.caffemodel.h5",
            "v0_legacy.caffemodel",
            "v1_legacy.caffemodel",
            "double_extra_layer.caffemodel",
            "partial.caffemodel",
        ],
    )
    def test_parameters_are_those_caffe_had_after_loading(self, name: str) -> None:
        net = net_in_file(FILES / "model_net.prototxt")
        recorded = np.load(FILES / f"{name}.npz")
        vector = copied_vector(net, FILES / name)
        for entry in net.params.entries:
            expected = recorded[f"param/{entry.layer}/{entry.index}"]
            np.testing.assert_array_equal(vector[entry.offset : entry.stop].reshape(entry.shape), expected)

    def test_layers_of_one_side_only_are_noted(self) -> None:
        net = net_in_file(FILES / "model_net.prototxt")
        vector = np.zeros(net.params.n_params, np.float32)
        extra = copy_weights(net, vector, read_caffemodel(FILES / "double_extra_layer.caffemodel"), where="m")
        assert extra == ["m: layers that the net does not have are ignored: somewhere_else"]
        missing = copy_weights(net, vector, read_caffemodel(FILES / "partial.caffemodel"), where="m")
        assert missing == ["m: has nothing for these layers, they keep their values: conv1"]

    def test_shared_blobs_of_both_forms_are_the_same(self) -> None:
        net = net_in_file(FILES / "shared_net.prototxt")
        binary, hdf5 = (copied_vector(net, FILES / f"shared_net.caffemodel{suffix}") for suffix in ("", ".h5"))
        np.testing.assert_array_equal(binary, hdf5)

    def test_hdf5_gap_before_an_own_blob_is_taken_from_the_owner(self, tmp_path: Path) -> None:
        text = """
            layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }
            layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
                    inner_product_param { num_output: 2 } }
            layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" }
                    inner_product_param { num_output: 2 } }
        """
        net = build_net_spec(parse_net(text), phase="TRAIN")
        vector = np.arange(8, dtype=np.float32)
        write_caffemodel(tmp_path / "m.caffemodel.h5", net, vector)
        blobs = read_caffemodel(tmp_path / "m.caffemodel.h5")
        assert [array.shape for array in blobs["b"]] == [(0,), (2,)]
        np.testing.assert_array_equal(copied_vector(net, tmp_path / "m.caffemodel.h5"), vector)


def hdf5_tree(path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = {}

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        is_data = isinstance(item, h5py.Dataset)
        tree[name] = (item[()].tobytes(), item.shape, str(item.dtype)) if is_data else "group"

    with h5py.File(path) as file:
        file.visititems(visit)
    return tree


SNAPSHOTS = sorted((CAFFE / "solvers").glob("*/snap_iter_10.caffemodel*"))


class TestWritingAsCaffe:
    @pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.parent.name)
    def test_snapshot_is_rewritten_as_caffe_wrote_it(self, path: Path, tmp_path: Path) -> None:
        net = net_in_file(path.parent / "net.prototxt", "TRAIN")
        copy = tmp_path / path.name
        write_caffemodel(copy, net, copied_vector(net, path))
        if path.suffix == ".h5":
            assert hdf5_tree(copy) == hdf5_tree(path)
        else:
            assert copy.read_bytes() == path.read_bytes()

    def test_cases_of_both_forms_are_there(self) -> None:
        assert {path.suffix for path in SNAPSHOTS} == {".h5", ".caffemodel"}

    @pytest.mark.parametrize("suffix", ["caffemodel", "caffemodel.h5"])
    def test_shared_net_is_rewritten_as_caffe_wrote_it(self, suffix: str, tmp_path: Path) -> None:
        original = FILES / f"shared_net.{suffix}"
        net = net_in_file(FILES / "shared_net.prototxt")
        copy = tmp_path / original.name
        write_caffemodel(copy, net, copied_vector(net, original))
        if suffix.endswith("h5"):
            assert hdf5_tree(copy) == hdf5_tree(original)
        else:
            assert copy.read_bytes() == original.read_bytes()

    def test_split_layers_and_phase_are_in_the_file(self, tmp_path: Path) -> None:
        net = net_in_file(CAFFE / "nets" / "fanout.prototxt", "TRAIN")
        write_caffemodel(tmp_path / "m.caffemodel", net, np.zeros(net.params.n_params, np.float32))
        saved = caffe_pb2.NetParameter.FromString((tmp_path / "m.caffemodel").read_bytes())
        assert [layer.name for layer in saved.layer] == [layer.name for layer in net.layers]
        assert {layer.phase for layer in saved.layer} == {caffe_pb2.TRAIN}

    SLASHES = """
        layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }
        layer { name: "a/1x1" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }
        layer { name: "a" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 2 } }
    """

    def test_slash_in_a_layer_name_survives_hdf5(self, tmp_path: Path) -> None:
        net = build_net_spec(parse_net(self.SLASHES), phase="TRAIN")
        vector = np.arange(12, dtype=np.float32)
        write_caffemodel(tmp_path / "m.h5", net, vector)
        np.testing.assert_array_equal(copied_vector(net, tmp_path / "m.h5"), vector)

    @pytest.mark.parametrize("name", ["a/1", "a/1/b"])
    def test_layer_named_like_a_blob_is_refused_in_hdf5(self, name: str, tmp_path: Path) -> None:
        net = build_net_spec(parse_net(self.SLASHES.replace("a/1x1", name)), phase="TRAIN")
        vector = np.arange(12, dtype=np.float32)
        with pytest.raises(WeightsError, match=f'layer "{name}" and a blob of layer "a" would have one name in HDF5'):
            write_caffemodel(tmp_path / "m.h5", net, vector)
        write_caffemodel(tmp_path / "m.caffemodel", net, vector)
        np.testing.assert_array_equal(copied_vector(net, tmp_path / "m.caffemodel"), vector)

    def test_vector_of_another_net_is_refused(self, tmp_path: Path) -> None:
        net = net_in_file(FILES / "model_net.prototxt")
        with pytest.raises(
            WeightsError, match=r'net "model_net": parameters have shape \(3,\) and type float64; expected'
        ):
            write_caffemodel(tmp_path / "m.caffemodel", net, np.zeros(3))  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    def test_file_beyond_protobufs_bound_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("caffe_import.files.caffemodel.MAX_BYTES", 100)
        net = net_in_file(FILES / "model_net.prototxt")
        with pytest.raises(WeightsError, match=r"protobuf reads at most 100; use \.caffemodel\.h5"):
            write_caffemodel(tmp_path / "m.caffemodel", net, np.zeros(net.params.n_params, np.float32))
        assert list(tmp_path.iterdir()) == []


class TestRefusals:
    @pytest.fixture
    def net(self) -> NetSpec:
        return net_in_file(FILES / "model_net.prototxt")

    @pytest.fixture
    def vector(self, net: NetSpec) -> Iterator[Vector]:
        """A vector that a refused copy must not touch."""
        vector = np.full(net.params.n_params, 0.25, np.float32)
        yield vector
        assert (vector == 0.25).all()

    def test_other_shape_names_layer_and_both_shapes(self, net: NetSpec, vector: Vector) -> None:
        blobs = read_caffemodel(FILES / "current.caffemodel")
        blobs["ip1"][0] = np.zeros((5, 64), np.float32)
        with pytest.raises(WeightsError) as caught:
            copy_weights(net, vector, blobs, where="m.caffemodel")
        assert str(caught.value) == (
            'm.caffemodel: layer "ip1" blob 0 has shape (5, 64), the net expects (3, 64); '
            "rename the layer to start it afresh"
        )

    @pytest.mark.parametrize("n_blobs", [0, 1, 3])
    def test_other_count_names_layer_and_all_shapes(self, net: NetSpec, vector: Vector, n_blobs: int) -> None:
        blobs = read_caffemodel(FILES / "current.caffemodel")
        blobs["ip1"] = [np.zeros((3, 64), np.float32), np.zeros(3, np.float32), np.zeros(1, np.float32)][:n_blobs]
        with pytest.raises(WeightsError) as caught:
            copy_weights(net, vector, blobs, where="m")
        assert f'layer "ip1" has {n_blobs} blobs of shapes' in str(caught.value)
        assert "the net expects 2 of shapes [(3, 64), (3,)]" in str(caught.value)

    def test_nothing_in_common_is_an_error(self, net: NetSpec, vector: Vector) -> None:
        with pytest.raises(WeightsError, match="the file has conv9, the net has conv1, ip1"):
            copy_weights(net, vector, {"conv9": [np.zeros(1, np.float32)]}, where="m")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is empty"),
            (b"\x89PNG\r\n\x1a\n", "is damaged, cut off or not a .caffemodel"),
            (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "is damaged, cut off or not a .caffemodel"),
            (b"\x0a\x01n", "holds no layers"),
        ],
        ids=["empty", "image", "cut hdf5", "no layers"],
    )
    def test_files_that_are_no_weights(self, tmp_path: Path, content: bytes, words: str) -> None:
        path = tmp_path / "m.caffemodel"
        path.write_bytes(content)
        with pytest.raises(WeightsError) as caught:
            read_caffemodel(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert words in str(caught.value)

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match=r"cannot be read: No such file or directory; a \.caffemodel"):
            read_caffemodel(tmp_path / "m.caffemodel")
        with pytest.raises(WeightsError, match="cannot be read: Is a directory"):
            read_caffemodel(tmp_path)

    @pytest.mark.parametrize("name", ["current.caffemodel", "current.caffemodel.h5", "v0_legacy.caffemodel"])
    def test_every_truncation_is_refused_or_reads_whole_layers(self, name: str, tmp_path: Path) -> None:
        content = (FILES / name).read_bytes()
        blobs = read_caffemodel(FILES / name)
        path = tmp_path / name
        for length in range(0, len(content), 37):
            path.write_bytes(content[:length])
            for layer, arrays in self.read_or_none(path).items():
                for array, expected in zip(arrays, blobs[layer], strict=True):
                    np.testing.assert_array_equal(array, expected)

    @staticmethod
    def read_or_none(path: Path) -> dict[str, list[Vector]]:
        try:
            return read_caffemodel(path)
        except WeightsError:
            return {}

    def test_hdf5_that_claims_more_than_it_stores_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "m.caffemodel.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("data/ip/0", shape=(10**6, 10**6), dtype="<f4", chunks=(1000, 1000))
        with pytest.raises(WeightsError, match=r'layer "ip" blob 0: claims shape \(1000000, 1000000\), stores 0 bytes'):
            read_caffemodel(path)

    @pytest.mark.parametrize(
        ("name", "shape"),
        [("ip1/0", (20_000, 1000)), ("ip1/7", (3, 64)), ("stranger/0", (20_000, 1000))],
        ids=["another shape", "a blob too many", "a layer of no net"],
    )
    def test_hdf5_that_unpacks_to_more_than_the_net_has_is_not_unpacked(
        self, net: NetSpec, vector: Vector, tmp_path: Path, name: str, shape: Shape
    ) -> None:
        path = tmp_path / "m.caffemodel.h5"
        with h5py.File(path, "w") as file:
            for entry in net.params.entries:
                if f"{entry.layer}/{entry.index}" != name:
                    file[f"data/{entry.layer}/{entry.index}"] = np.full(entry.shape, 0.25, np.float32)
            file.create_dataset(f"data/{name}", data=np.zeros(shape, np.float32), compression="gzip")
        assert path.stat().st_size < 1_000_000
        tracemalloc.start()
        try:
            blobs = read_caffemodel(path, net=net)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        layer, index = name.split("/")
        assert blobs[layer][int(index)].shape == shape
        if layer == "ip1":
            with pytest.raises(WeightsError, match="the net expects"):
                copy_weights(net, vector, blobs, where="m")
        else:
            assert (
                "layers that the net does not have are ignored: stranger"
                in copy_weights(net, vector, blobs, where="m")[0]
            )

    def test_hdf5_in_parts_larger_than_its_blob_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "m.caffemodel.h5"
        with h5py.File(path, "w") as file:
            item = file.create_dataset(
                "data/ip/0", (3, 4), "<f4", chunks=(3000, 2000), maxshape=(None, None), compression=9
            )
            item[...] = np.ones((3, 4), np.float32)
        assert path.stat().st_size < 100_000
        with pytest.raises(WeightsError, match=r"has shape \(3, 4\), stored in parts of \(3000, 2000\)"):
            read_caffemodel(path)

    def test_hdf5_of_another_kind_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "m.h5"
        with h5py.File(path, "w") as file:
            file["label"] = np.zeros(3)
        with pytest.raises(WeightsError, match='has no group "data"'):
            read_caffemodel(path)
        with h5py.File(path, "w") as file:
            file["data/ip/0"] = "text"
        with pytest.raises(WeightsError, match='layer "ip" blob 0: a dataset of numbers was expected'):
            read_caffemodel(path)

    def test_too_large_a_message_is_refused_unread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binary_file, "MAX_BYTES", 100)
        with pytest.raises(WeightsError, match="protobuf reads at most 100: use the HDF5 form"):
            read_caffemodel(FILES / "current.caffemodel")


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_file_gives_arrays_or_a_named_error(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["current.caffemodel", "v1_legacy.caffemodel", "current.caffemodel.h5"]))
    content = bytearray((FILES / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(bytes(content))
    for arrays in TestRefusals.read_or_none(path).values():
        assert all(array.dtype == np.float32 for array in arrays)


def test_an_hdf5_model_whose_groups_are_linked_to_each_other_ends_soon(tmp_path):
    path = tmp_path / "m.caffemodel.h5"
    with h5py.File(path, "w") as file:
        file["data/a/0"] = np.ones(2, "f4")
        inner = file["data/a"]
        for depth in range(40):  # 2^40 ways to the innermost
            outer = file.create_group(f"g{depth}")
            outer["left"], outer["right"] = inner, inner
            inner = outer
        file["data/all"] = inner
    with pytest.raises(WeightsError, match=r'group "all/left.*" is another one\'s, too, by a link'):
        read_caffemodel(path)
    with h5py.File(path, "w") as file:
        file["data/a/0"] = np.ones(2, "f4")
        file["data/a/b"] = file["data"]
    with pytest.raises(WeightsError, match="by a link"):
        read_caffemodel(path)
