"""Check looks at the first samples of data that are ingested later: shapes, labels and crops are found wrong now."""

import numpy as np
import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.datum import encode_datum
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest import preview as preview_module
from deepspark_ops.ingest.sources import caffe_lmdb
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.table import report_lines
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from tests.reference.raw_sources import write_cifar, write_idx, write_images, write_tar

NET = """
name: "tiny"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "none/train" batch_size: 4 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "none/test" batch_size: 3 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 test_iter: 2 test_interval: 5'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_solver(tmp_path, NET)
    return tmp_path


def write_solver(folder, net):
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER)


def inspect(folder, *, weights=None, **source):
    return inspect_solver(CheckConfig(solver=folder / "solver.prototxt", weights=weights, ingest=source))


def image_list(folder):
    return write_images(folder / "raw", 30)  # three classes of ten


def in_archive(folder):
    images = image_list(folder).parent
    files = {f"x/{path.relative_to(images)}": path.read_bytes() for path in images.rglob("*") if path.is_file()}
    return f"{write_tar(folder / 'images.tar.gz', files)}::x/list.txt"


def idx(folder):
    write_idx(folder / "train-labels-idx1-ubyte", np.arange(30) % 3)
    return write_idx(folder / "train-images-idx3-ubyte", np.zeros((30, 9, 8)))


def cifar(folder):
    write_cifar(folder / "data_batch_1.bin", [i % 3 for i in range(30)])
    return folder


def lmdb(folder):
    records = [(sample_key(i, f"x{i}"), encode_datum(np.zeros((2, 6, 7), np.uint8), i % 3)) for i in range(30)]
    write_lmdb_shard(folder / "db", records)
    return folder / "db"


@pytest.mark.parametrize(
    ("make_source", "shape"),
    [(image_list, (3, 8, 8)), (in_archive, (3, 8, 8)), (idx, (1, 9, 8)), (cifar, (3, 32, 32)), (lmdb, (2, 6, 7))],
)
def test_every_format_gives_the_shapes_that_ingestion_would(folder, make_source, shape):
    source = make_source(folder)
    old_files = sorted(folder.rglob("*"))
    report = inspect(folder, source=source, test_fraction=0.4)
    assert [problem for problem in report.problems if problem.severity == "error"] == []
    assert [net.title for net in report.nets] == ["train", "test"]
    train, test = report.nets
    assert [data.sample_shapes for net in report.nets for data in net.data] == [(shape, ())] * 2
    assert train.layers[0].top_shapes == ((4, *shape), (4,))
    n_samples = (train.data[0].n_samples, test.data[0].n_samples)
    assert sum(n_samples) == 30  # the test's records depend on their names
    assert min(n_samples) > 0
    assert {train.data[0].source, test.data[0].source} == {str(source)}
    assert report.work is not None
    assert report.work.epochs == 10 * 4 / n_samples[0]
    assert sorted(folder.rglob("*")) == old_files


def test_options_of_the_ingestion_count(folder):
    report = inspect(folder, source=image_list(folder), gray=True, resize_height=5, resize_width=6)
    assert report.nets[0].data[0].sample_shapes == ((1, 5, 6), ())


def test_check_says_which_sizes_a_resize_changes(folder):
    source = image_list(folder)
    sentence = "pictures of 8x8 become 5x6 (height x width)"
    report = inspect(folder, source=source, resize_height=5, resize_width=6)
    assert [data.resized for net in report.nets for data in net.data] == [sentence, sentence]
    assert report_lines(report).count(f"  {sentence}") == 2
    for options in ({}, {"resize_height": 8, "resize_width": 8}):
        checked = inspect(folder, source=source, **options)
        assert {data.resized for net in checked.nets for data in net.data} == {""}


def test_the_test_source_is_looked_at_too(folder):
    other = write_images(folder / "other", 12, size=(6, 6))
    (error,) = inspect(folder, source=image_list(folder), test_source=other).errors
    assert "no usable record is left for the test set; first: img/0.png: shape (3, 6, 6)" in error
    report = inspect(folder, source=folder / "raw" / "list.txt", test_source=other, resize_height=5, resize_width=5)
    assert [(data.n_samples, data.source) for net in report.nets for data in net.data] == [
        (30, str(folder / "raw" / "list.txt")),
        (12, str(other)),
    ]


def test_a_crop_larger_than_the_image_is_refused(folder):
    write_solver(folder, NET.replace("phase: TRAIN }", "phase: TRAIN } transform_param { crop_size: 9 }"))
    (error,) = inspect(folder, source=image_list(folder)).errors
    assert error.startswith("train net: ")
    assert "crop_size=9 does not fit into samples of shape (3, 8, 8)" in error
    assert inspect(folder, source=folder / "raw" / "list.txt", resize_height=9, resize_width=9).errors == ()


def test_a_label_outside_the_scores_is_refused(folder):
    write_solver(folder, NET.replace("num_output: 3 }", "num_output: 2 }"))
    errors = inspect(folder, source=image_list(folder)).errors
    assert errors[0].endswith("the dataset has labels 0 to 2; set num_output of the last layer to 3")


def test_scores_without_a_class_are_noted(folder):
    write_solver(folder, NET.replace("num_output: 3 }", "num_output: 1000 }"))
    report = inspect(folder, source=image_list(folder))
    expected = "set num_output of the last layer to 3, unless other data have the other classes"
    assert report.errors == ()
    assert [problem.finding.partition("; ")[2] for problem in report.problems if "1000" in problem.finding] == [
        expected
    ]


def test_weights_for_another_image_size_are_refused(folder):
    shapes = build_net_spec(parse_net(NET), phase="TRAIN", sample_shapes=lambda _: ((3, 8, 8), ()))
    write_caffemodel(folder / "w.caffemodel", shapes, np.zeros(shapes.params.n_params, np.float32))
    source = image_list(folder)
    assert inspect(folder, source=source, weights=folder / "w.caffemodel").errors == ()
    (error,) = inspect(folder, source=source, gray=True, weights=folder / "w.caffemodel").errors
    assert 'layer "conv" blob 0 has shape (3, 3, 3, 3), the net expects (3, 1, 3, 3)' in error


def test_wrong_wiring_is_found_though_the_source_is_missing(folder):
    missing = f"source={folder}/none.txt: no such file or folder"
    assert inspect(folder, source=folder / "none.txt").errors == (missing,)
    write_solver(folder, NET.replace('bottom: "conv" top: "ip"', 'bottom: "cnov" top: "ip"'))
    first, wiring_error = inspect(folder, source=folder / "none.txt").errors
    assert first == missing
    assert 'layer "ip"' in wiring_error
    assert '"cnov"' in wiring_error


def test_a_source_without_a_usable_record_is_an_error(folder):
    (folder / "list.txt").write_text("a.png 0\nb.png 0\n")
    (error,) = inspect(folder, source=folder / "list.txt").errors
    assert "none of the first 2 records can be used: a.png: No such file or directory" in error


def test_a_large_compressed_file_is_not_unpacked_and_check_says_so(folder, monkeypatch):
    source = in_archive(folder)
    monkeypatch.setattr(preview_module, "UNPACK_UP_TO_BYTES", 100)
    report = inspect(folder, source=source)
    (problem,) = report.problems
    assert problem.severity == "warning"
    assert problem.finding.startswith(
        f"shapes are not checked, the data are ingested later: {folder}/images.tar.gz is compressed and has"
        f" {(folder / 'images.tar.gz').stat().st_size / 2**10:.1f} KiB"
    )
    assert (report.nets, report.work) == ((), None)


def test_of_a_large_lmdb_the_first_records_are_read(folder, monkeypatch):
    source = lmdb(folder)
    monkeypatch.setattr(caffe_lmdb, "READ_LABELS_UP_TO", 20)
    monkeypatch.setattr(preview_module, "N_SAMPLES", 2)
    report = inspect(folder, source=source)
    assert report.errors == ()
    assert [(data.n_samples, data.sample_shapes) for net in report.nets for data in net.data] == [
        (None, ((2, 6, 7), ()))
    ] * 2
    assert report.work is not None
    assert report.work.epochs is None
    assert any(line.endswith(f"data reads {source}: samples of 2x6x7, scalar") for line in report_lines(report))


def test_a_dataset_and_a_source_together_are_refused(folder):
    with pytest.raises(ConfigError, match=r"dataset=d and source=s: give one"):
        parse_config(CheckConfig, {"solver": "s", "dataset": "d", "ingest": {"source": "s"}})
