"""From a layer's message to its source, and messages for wrong names in a layer."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

from caffe_import.data import open_source, sample_shapes_of
from caffe_import.data.memory_source import MemorySource
from caffe_import.errors import CaffeImportError, DataSourceError, NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"


def layer_from(text: str) -> caffe_pb2.LayerParameter:
    return text_format.Parse('name: "d" ' + text, caffe_pb2.LayerParameter())


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (
            'type: "Data" top: "x" top: "y" data_param { source: "data/lmdb_png" backend: LMDB }'
            " transform_param { force_gray: true crop_size: 3 }",
            ((1, 14, 17), ()),
        ),
        ('type: "Data" top: "x" data_param { source: "data/leveldb_raw" }', ((3, 14, 17),)),
        (
            'type: "ImageData" top: "x" top: "y" image_data_param { source: "data/list_sizes.txt"'
            ' root_folder: "data/img/" new_height: 4 new_width: 6 }',
            ((3, 4, 6), ()),
        ),
        ('type: "HDF5Data" top: "label" top: "data" hdf5_data_param { source: "data/hdf5_list.txt" }', ((), (2, 3))),
    ],
)
def test_sample_shapes_are_those_before_the_crop(text, shapes):
    assert sample_shapes_of(layer_from(text), CAFFE) == shapes


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            'type: "Input" top: "x"',
            NetError,
            'layer "d" (Input) has no source that can be opened; types that have: Data, ImageData, HDF5Data',
        ),
        ('type: "Data" top: "x"', NetError, 'layer "d" (Data): source is missing'),
        (
            'type: "Data" top: "x" data_param { source: "data/lmdb_raw" }',
            DataSourceError,
            'layer "d" (Data): source "data/lmdb_raw" is no LEVELDB: it is an LMDB; set backend: LMDB'
            " in data_param (of a V0 net: after deepspark upgrade)",
        ),
        (
            'type: "Data" top: "x" data_param { source: "data/leveldb_raw" backend: LMDB }',
            DataSourceError,
            'layer "d" (Data): source "data/leveldb_raw" is no LMDB: it is a LEVELDB; set backend: LEVELDB',
        ),
        (
            'type: "Data" top: "x" data_param { source: "data/img" backend: LMDB }',
            DataSourceError,
            'layer "d" (Data): source "data/img" is no LMDB: found neither data.mdb nor CURRENT; images and'
            ' other files are ingested first ("deepspark ingest", then --dataset)',
        ),
        (
            'type: "Data" top: "x" data_param { source: "gone" backend: LMDB }',
            DataSourceError,
            f'layer "d" (Data): source "gone": no such database folder ({CAFFE}/gone)',
        ),
        (
            'type: "ImageData" top: "x" image_data_param { source: "data/list_png.txt" new_height: 5 }',
            NetError,
            'layer "d" (ImageData): new_height: 5 new_width: 0; give both or neither',
        ),
        (
            'type: "HDF5Data" top: "x" hdf5_data_param { source: "data/hdf5_list.txt" } transform_param { scale: 2 }',
            NetError,
            'layer "d" (HDF5Data): transform_param is not allowed; HDF5 rows are used as stored',
        ),
    ],
)
def test_wrong_layer_says_what_to_change(text, error, message):
    with pytest.raises(CaffeImportError) as caught:
        open_source(layer_from(text), CAFFE)
    assert isinstance(caught.value, error)
    assert str(caught.value) == message


def test_folder_above_the_databases_names_one(tmp_path):
    for shard in ("train/0.lmdb", "test/0.lmdb"):
        shutil.copytree(CAFFE / "data" / "lmdb_raw", tmp_path / "digits" / shard)
    with pytest.raises(
        DataSourceError, match=r"but databases in folders below it: test/0\.lmdb and 1 more; name one of them, or"
    ):
        open_source(layer_from('type: "Data" top: "x" data_param { source: "digits" backend: LMDB }'), tmp_path)


def test_memory_source_gives_copies_of_rows():
    data = np.arange(12.0).reshape(4, 3)
    source = MemorySource([data, np.arange(4)])
    rows, labels = source.read(1, 2)
    rows[:] = 0
    assert (len(source), source.sample_shapes(), labels.tolist()) == (4, ((3,), ()), [1, 2])
    assert data[1].tolist() == [3.0, 4.0, 5.0]
    for columns in ([], [np.zeros(0)], [np.zeros(2), np.zeros(3)]):
        with pytest.raises(ValueError, match="equal and at least one sample"):
            MemorySource(columns)


@pytest.mark.parametrize(
    ("root_folder", "name"),
    [
        ("{0}/data/", "/a.png"),
        ("{0}/data/img_", "1.png"),
        ("data/", "/a.png"),
        ("data/img_", "1.png"),
        ("data", "a.png"),
    ],
)
def test_image_data_joins_root_folder_and_name_as_texts(root_folder: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in ("a.png", "img_1.png"):
        cv2.imwrite(str(tmp_path / "data" / file), np.full((2, 3, 3), 50, np.uint8))
    (tmp_path / "list.txt").write_text(f"{name} 4\n")
    layer = parse_net(
        'layer { name: "d" type: "ImageData" top: "x" top: "y" image_data_param { source: "list.txt" root_folder: "'
        f'{root_folder.format(tmp_path)}" }} }}'
    ).layer[0]
    images, labels = open_source(layer, tmp_path).read(0, 1)
    assert (images.shape, labels.tolist()) == ((1, 3, 2, 3), [4])
