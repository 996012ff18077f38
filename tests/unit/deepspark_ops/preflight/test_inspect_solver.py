import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.datum import encode_datum
from caffe_import.files.mean_file import write_mean
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import registered_types
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto.caffe_pb2 import LayerParameter
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices import worker_rows
from deepspark_ops.devices.host_gpus import HostGpus
from deepspark_ops.preflight import emitters
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.table import report_lines
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from deepspark_ops.troubleshooting import explained

NET = """
name: "tiny"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "train_lmdb" batch_size: 4 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "test_lmdb" batch_size: 5 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
""".replace("kernel_size: 3", 'kernel_size: 3 weight_filler { type: "xavier" }')
SOLVER = """
net: "net.prototxt" base_lr: 0.1 lr_policy: "multistep" gamma: 0.5 stepvalue: 30 stepvalue: 60 max_iter: 100
iter_size: 2 test_iter: 2 test_interval: 10 snapshot_prefix: "tiny"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    for name, n in (("train_lmdb", 20), ("test_lmdb", 10)):
        image = np.zeros((2, 6, 7), np.uint8)
        write_lmdb_shard(tmp_path / name, [(sample_key(k, "x"), encode_datum(image, k % 2)) for k in range(n)])
    return tmp_path


def inspect(folder, **options):
    return inspect_solver(CheckConfig(solver=folder / "solver.prototxt", **options))


def test_layers_have_shapes_parameters_and_cost_counted_by_hand(folder):
    train, test = inspect(folder).nets
    by_name = {layer.name: layer for layer in train.layers}
    assert by_name["conv"].top_shapes == ((4, 3, 4, 5),)
    assert by_name["conv"].n_params == 3 * 2 * 9 + 3
    # Every output is a dot of 2 x 3 x 3 values; a multiply-add counts two. The bias may count or not.
    outputs = 4 * 3 * 4 * 5
    assert outputs * 2 * 18 <= by_name["conv"].flops <= outputs * (2 * 18 + 1)
    assert by_name["conv"].activation_bytes == 4 * outputs
    assert by_name["relu"].activation_bytes == 0
    assert train.n_params == 57 + 60 * 2 + 2
    assert train.batch_size == 4
    assert train.data[0].n_samples == 20
    assert test.data[0].sample_shapes == ((2, 6, 7), ())
    assert [layer.type for layer in test.layers].count("Split") == 0


@pytest.mark.parametrize("labels", [[0] * 999 + [2], [2] + [1] * 999, [1 + k % 2 for k in range(1000)]])
def test_a_label_of_the_net_s_own_database_that_is_no_class_is_an_error(folder, labels):
    shutil.rmtree(folder / "test_lmdb")
    image = np.zeros((2, 6, 7), np.uint8)
    records = [(sample_key(k, "x"), encode_datum(image, label)) for k, label in enumerate(labels)]
    write_lmdb_shard(folder / "test_lmdb", records)
    (error,) = inspect(folder).errors
    row = labels.index(2)
    assert error.startswith("test net: ")
    assert f'label 2 of sample {row} ("{row:08d}_x") of source of layer "data" is none of the 2 classes' in error
    assert error.endswith("or give the net as many outputs as there are classes")


def test_every_device_of_a_worker_computes_passes_of_its_own(folder):
    work = inspect(folder, n_workers=3, gpus_per_worker=4).work
    assert work.iter_size == 2 * 4
    assert work.effective_batch == 4 * 2 * 4 * 3
    assert work.n_samples == 100 * 4 * 2 * 4


def test_layers_that_compute_in_16_bits_say_so_in_the_training_net(folder):
    train, test = inspect(folder, precision="bfloat16").nets
    note = "computes in bfloat16 in training"
    assert [layer.name for layer in train.layers if note in layer.notes] == ["conv", "ip"]
    assert not any(note in layer.notes for layer in test.layers)
    assert not any("computes in" in note for layer in inspect(folder).nets[0].layers for note in layer.notes)


def test_each_worker_says_its_device_and_the_memory_needed_and_there(folder, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # without oneDNN the columns of convolutions count in MiB
    report = inspect(folder, n_workers=2, devices="cpu")
    (row,) = report.work.worker_devices
    assert (row.computes_on, row.needed_bytes) == ("CPU", report.work.worker_bytes)
    (line,) = [line for line in report_lines(report) if "each worker" in line and "needs" in line]
    assert re.search(r"CPU: needs about [\d,]+\.\d MiB, \d+\.\d GiB there \(its share of this machine\)", line)
    two = "\n".join(report_lines(inspect(folder, devices="cpu", gpus_per_worker=2)))
    assert re.search(r"device 0, 1: logical device of the CPU: needs about \d+\.\d KiB, ", two)


def test_a_gpu_that_is_too_small_is_a_warning_with_what_helps(folder, monkeypatch):
    monkeypatch.setattr(worker_rows, "host_gpus", lambda _: HostGpus(("0",)))
    monkeypatch.setattr(worker_rows, "gpu_memory_bytes", lambda _: 1000)
    (finding,) = [problem.finding for problem in inspect(folder).problems if "needs about" in problem.finding]
    assert re.match(
        r"device 0 of a worker needs about \d+\.\d [KM]iB, the smallest GPU of this host has 1000 B; take a", finding
    )
    assert "--recompute or --placement auto" in finding


def test_work_is_counted_over_all_workers(folder):
    work = inspect(folder, n_workers=3).work
    assert work.effective_batch == 4 * 2 * 3
    assert work.n_samples == 100 * 4 * 2
    assert work.epochs == 40
    assert [(point.clock, round(point.learning_rate, 6)) for point in work.learning_rates] == [
        (0, 0.1),
        (30, 0.05),
        (60, 0.025),
        (99, 0.025),
    ]
    assert work.center_bytes == 4 * 179


def test_overrides_count(folder):
    assert inspect(folder, overrides="max_iter: 7 iter_size: 1").work.n_samples == 28


def test_sound_solver_has_no_problems(folder):
    assert inspect(folder).problems == ()


def test_missing_source_is_a_problem_with_its_remedy(folder):
    (folder / "test_lmdb" / "data.mdb").unlink()
    (folder / "test_lmdb").rmdir()
    report = inspect(folder)
    assert [net.title for net in report.nets] == ["train"]
    (error,) = report.errors
    assert error.startswith('test net: layer "data" (Data): source "')
    assert "no such database folder" in error
    assert "remedy: Correct `source`, or run `deepspark ingest` and give its output as `--dataset`" in explained(error)


def test_a_test_net_of_the_training_data_is_noted_before_the_scored_net(folder):
    net = folder / "net.prototxt"
    on_train = """layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST stage: "train" }
      data_param { source: "train_lmdb" batch_size: 5 backend: LMDB } }"""
    net.write_text(on_train + net.read_text().replace("phase: TEST }", 'phase: TEST stage: "test" }', 1))
    states = 'test_state { stage: "train" } test_state { stage: "test" } test_iter: 4 test_iter: 2'
    solver = folder / "solver.prototxt"
    solver.write_text(solver.read_text().replace("test_iter: 2", states))
    problems = [problem.finding for problem in inspect(folder).problems]
    assert problems == ["evaluate scores the test 1 net; each test net before reads the training data"]


def test_a_database_of_the_other_kind_has_one_remedy(folder):
    net = folder / "net.prototxt"
    net.write_text(net.read_text().replace("backend: LMDB", ""))
    errors = inspect(folder).errors
    assert len(errors) == 2
    for error in errors:
        assert error.endswith("it is an LMDB; set backend: LMDB in data_param (of a V0 net: after deepspark upgrade)")
        assert explained(error) == error


def test_test_iter_that_does_not_cover_the_test_set_is_noted(folder):
    (problem,) = inspect(folder, overrides="test_iter: 3").problems
    assert problem.severity == "warning"
    assert problem.finding == "test net: test_iter 3 x batch_size 5 = 15 samples of 10; some are scored twice"


def test_every_unknown_type_is_placed_at_its_word(folder):
    net = NET.replace('"InnerProduct"', '"InnerProdukt"').replace('"ReLU"', '"RELU"')
    (folder / "net.prototxt").write_text(net)
    problems = [problem for problem in inspect(folder).problems if problem.finding.startswith("train net")]
    assert [(problem.path, problem.line, problem.column) for problem in problems] == [
        (f"{folder}/net.prototxt", 8, net.splitlines()[7].index('"RELU"') + 1),
        (f"{folder}/net.prototxt", 9, net.splitlines()[8].index('"InnerProdukt"') + 1),
    ]
    assert problems[0].finding.startswith(f'train net: {folder}/net.prototxt:8:28: layer "relu": no importer')
    assert problems[0].finding.endswith('did you mean "ReLU"?')


def test_layer_that_cannot_be_built_is_placed_in_the_phase_that_has_it(folder):
    (folder / "net.prototxt").write_text(NET.replace("batch_size: 5", "batch_size: 0"))
    (error,) = inspect(folder).errors
    assert error.startswith(f'test net: {folder}/net.prototxt:5:1: layer "data" (Data): ')


def test_a_fault_of_both_nets_is_one_error_with_its_place(folder):
    (folder / "net.prototxt").write_text(NET.replace('name: "relu"', 'name: "relu" include {} exclude {}'))
    error = f'{folder}/net.prototxt:8:1: layer "relu" has include and exclude rules; keep the rules of one kind'
    assert inspect(folder).errors == (f"train net: {error}",)


def test_net_inside_the_solver_has_no_place(folder):
    net = NET.replace('"InnerProduct"', '"InnerProdukt"')
    inside = "net_param { " + net + " }"
    (folder / "solver.prototxt").write_text(SOLVER.replace('net: "net.prototxt"', inside))
    report = inspect(folder)
    assert [(file_format.version, file_format.upgrades) for file_format in report.formats] == [("current", ())]
    assert report.formats[0].file.endswith("solver.prototxt, net 1 inside")
    assert report.errors[0].startswith('train net: layer "ip": no importer')
    assert report.problems[0].line == 0


def test_old_format_is_named_with_its_upgrades(folder):
    old = """
    name: "old" input: "data" input_dim: 2 input_dim: 1 input_dim: 4 input_dim: 4
    layers { layer { name: "ip" type: "innerproduct" num_output: 3 } bottom: "data" top: "ip" }
    """
    (folder / "net.prototxt").write_text(old)
    report = inspect(folder)
    assert [(file_format.version, file_format.upgrades) for file_format in report.formats] == [
        (
            "V0",
            (
                "V0 layers become V1 layers",
                "V1 layers become current layers",
                "input fields of the net become an Input layer",
            ),
        )
    ]
    assert f"{folder}/net.prototxt: V0 format, upgraded: V0 layers become V1 layers;" in "\n".join(report_lines(report))


def test_current_format_is_named_once(folder):
    (file_format,) = inspect(folder).formats
    assert (file_format.file, file_format.version, file_format.upgrades) == (f"{folder}/net.prototxt", "current", ())


def test_bottoms_have_the_names_of_the_file(folder):
    train = inspect(folder).nets[0]
    assert {layer.name: layer.bottoms for layer in train.layers}["loss"] == ("ip", "label")
    test = inspect(folder).nets[1]
    assert {layer.name: layer.bottoms for layer in test.layers}["accuracy"] == ("ip", "label")


def test_net_without_loss_cannot_be_trained(folder):
    (folder / "net.prototxt").write_text(NET[: NET.index('layer { name: "loss"')])
    assert "train net: no layer has a loss, so there is nothing to train; add a loss layer" in inspect(folder).errors


def test_a_loss_that_the_rules_leave_out_is_named(folder):
    staged = NET.replace('top: "loss" }', 'top: "loss" include { stage: "fine" } }')
    (folder / "net.prototxt").write_text(staged)
    (error,) = inspect(folder).errors
    assert error.endswith('so there is nothing to train; the rules of the solver\'s train_state leave out "loss"')
    assert not inspect(folder, overrides='train_state { stage: "fine" }').errors


def test_hidden_weights_that_start_at_0_are_noted(folder):
    (folder / "net.prototxt").write_text(NET.replace('weight_filler { type: "xavier" }', ""))
    (problem,) = inspect(folder).problems
    assert problem.finding.startswith('train net: the weights of "conv" start at 0, so the net may learn nothing; give')


def test_the_last_weights_before_each_loss_may_start_at_0(folder):
    head = """
    layer { name: "slope" type: "PReLU" bottom: "conv" top: "slope" }
    layer { name: "hidden" type: "InnerProduct" bottom: "slope" top: "hidden" inner_product_param { num_output: 2 } }
    layer { name: "scale" type: "Scale" bottom: "hidden" top: "hidden" }
    layer { name: "ip2" type: "InnerProduct" bottom: "hidden" top: "ip2" inner_product_param { num_output: 2 } }
    layer { name: "loss2" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss2" }
    """
    (folder / "net.prototxt").write_text(NET + head)
    (problem,) = inspect(folder).problems
    assert problem.finding.startswith('train net: the weights of "hidden" start at 0,')


@pytest.mark.parametrize(
    ("transform", "finding"),
    [
        ('mean_file: "mean"', "mean_file holds shape (2, 9, 9), the images have (2, 6, 7); allowed: equal shapes, or"),
        ("mean_value: 1 mean_value: 2 mean_value: 3", "3 mean_value for images of 2 channels; allowed: 1 or 2"),
    ],
)
def test_a_mean_that_does_not_fit_the_images_is_refused_with_its_layer(folder, transform, finding):
    write_mean(folder / "mean", np.zeros((2, 9, 9), np.float32))
    with_mean = NET.replace("data_param", f"transform_param {{ {transform} }} data_param", 1)
    (folder / "net.prototxt").write_text(with_mean)
    (error,) = inspect(folder).errors
    assert f'layer "data" (Data): {finding}' in error


def test_solver_that_would_keep_nothing_is_refused(folder):
    errors = inspect(folder, overrides="snapshot_after_train: false").errors
    assert errors == ("solver: snapshot is 0 and snapshot_after_train false, so no weights would be kept",)


def test_weights_say_which_layers_start_fresh(folder):
    head = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 6 dim: 7 } } }'
    start = NET.index('layer { name: "conv"')
    net = build_net_spec(parse_net(head + NET[start : NET.index('layer { name: "ip"')]), phase="TEST")
    write_caffemodel(folder / "w.caffemodel", net, np.zeros(net.params.n_params, np.float32))
    (problem,) = inspect(folder, weights=folder / "w.caffemodel").problems
    assert problem.finding == f'{folder}/w.caffemodel has no weights for "ip": these layers start fresh'


def test_weights_of_a_layer_that_shares_them_fill_the_owner(folder):
    head = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 6 dim: 7 } } }'
    conv = NET[NET.index('layer { name: "conv"') : NET.index('layer { name: "relu"')]
    shared = conv.replace("convolution_param", 'param { name: "w" } param { name: "b" } convolution_param')
    sharer = shared.replace('name: "conv"', 'name: "sharer"').replace('top: "conv"', 'top: "twin"')
    (folder / "net.prototxt").write_text(NET.replace(conv, shared + sharer))
    net = build_net_spec(parse_net(head + sharer), phase="TEST")
    write_caffemodel(folder / "w.caffemodel", net, np.zeros(net.params.n_params, np.float32))
    findings = [problem.finding for problem in inspect(folder, weights=folder / "w.caffemodel").problems]
    assert f'{folder}/w.caffemodel has no weights for "ip": these layers start fresh' in findings


@pytest.mark.parametrize("named_in", ["solver", "config"])
def test_several_weights_are_looked_at_together(folder, named_in):
    head = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 6 dim: 7 } } }'
    start = NET.index('layer { name: "conv"')
    text = head + NET[start : NET.index('layer { name: "accuracy"')]
    for file, renamed in (("a", "conv"), ("b", "ip")):
        net = build_net_spec(parse_net(text.replace(f'name: "{renamed}"', 'name: "other"')), phase="TEST")
        write_caffemodel(folder / f"{file}.caffemodel", net, np.zeros(net.params.n_params, np.float32))
    both = f"{folder}/a.caffemodel,{folder}/b.caffemodel"
    if named_in == "solver":
        (folder / "solver.prototxt").write_text(SOLVER + f'weights: "{both}"')
        assert inspect(folder).problems == ()
        (folder / "a.caffemodel").unlink()
        (error,) = inspect(folder).errors
        assert error.startswith(f"{folder}/a.caffemodel: ")
    else:
        assert inspect(folder, weights=both).problems == ()
        (problem,) = inspect(folder, weights=f"{folder}/a.caffemodel").problems
        assert problem.finding == f'{folder}/a.caffemodel has no weights for "conv": these layers start fresh'


def test_lines_for_a_log_hold_the_figures(folder):
    text = "\n".join(report_lines(inspect(folder)))
    assert "conv" in text
    assert "4x3x4x5" in text
    assert "0.1 at 0, 0.05 at 30, 0.025 at 60, 0.025 at 99" in text
    assert "\x1b" not in text


def test_process_fails_with_the_finding_as_its_last_message(folder):
    (folder / "train_lmdb" / "data.mdb").unlink()
    config = folder / "config.json"
    config.write_text(CheckConfig(solver=folder / "solver.prototxt").model_dump_json())
    completed = subprocess.run(
        [sys.executable, "-m", "deepspark_ops.preflight", str(config)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 2
    assert completed.stderr.splitlines()[-1].startswith("ERROR: train net: layer")


def test_report_needs_neither_tensorflow_nor_spark():
    script = (
        "import sys, deepspark_ops.preflight.inspect_solver, deepspark_ops.preflight.table\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('tensorflow', 'pyspark', 'airflow', 'keras')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("data", [{}, {"ingest": {"source": "none.txt"}}])
def test_type_that_no_worker_could_compute_is_refused_with_its_place(folder, monkeypatch, data):
    monkeypatch.setattr(emitters, "_emitter_modules", lambda: frozenset({"inner_product", "softmax_with_loss", "relu"}))
    errors = inspect(folder, **data).errors
    assert next(error for error in errors if "Convolution" in error).endswith(
        'net.prototxt:7:28: layer "conv": type Convolution can be read but not computed; '
        "its TensorFlow side is missing (caffe_import/tf_graph/layers/convolution.py)"
    )
    assert "Convolution" in inspect(folder, **data).layer_types


def test_weights_of_another_shape_are_an_error(folder):
    net = parse_net(NET.replace("num_output: 2 }", "num_output: 5 }"))
    shapes = build_net_spec(net, phase="TRAIN", sample_shapes=lambda _: ((2, 6, 7), ()))
    write_caffemodel(folder / "w.caffemodel", shapes, np.zeros(shapes.params.n_params, np.float32))
    (error,) = inspect(folder, weights=folder / "w.caffemodel").errors
    assert 'layer "ip" blob 0 has shape (5, 60), the net expects (2, 60)' in error


def test_every_registered_type_can_be_computed_or_is_fed():
    for name in registered_types():
        emitters.require_emitter(LayerParameter(name="any", type=name))


def test_what_the_solver_may_not_mean_is_told(folder):
    (folder / "solver.prototxt").write_text(SOLVER + "layer_wise_reduce: true")
    assert any(
        problem.severity == "warning" and problem.finding.startswith("solver: layer_wise_reduce is ignored")
        for problem in inspect(folder).problems
    )


def test_old_solver_type_is_named(folder):
    (folder / "solver.prototxt").write_text(SOLVER + "solver_type: ADAM momentum: 0.9")
    lines = report_lines(inspect(folder))
    assert f'{folder}/solver.prototxt: old format, upgraded: solver_type: ADAM -> type: "Adam"' in lines


def test_a_blob_that_caffe_overwrites_through_shared_memory_is_placed(folder):
    aside = (
        'layer { name: "flat" type: "Flatten" bottom: "conv" top: "flat" }\n'
        'layer { name: "drop" type: "Dropout" bottom: "flat" top: "flat" }\n'
        'layer { name: "unread" type: "Silence" bottom: "flat" }\n'
    )
    ip = 'layer { name: "ip"'
    (folder / "net.prototxt").write_text(NET.replace(ip, aside + ip))
    (problem,) = inspect(folder).problems
    assert (problem.severity, problem.line, problem.column) == ("warning", 12, 1)
    assert problem.finding.startswith(
        f'train net: {folder}/net.prototxt:12:1: layer "ip" reads blob "conv", but in Caffe it finds what layer '
        '"drop" wrote in place over blob "flat": '
    )


def test_a_bottom_that_the_rules_leave_out_names_its_layer_and_the_state(folder):
    net = NET.replace('top: "conv" convolution_param', 'top: "conv" include { stage: "wide" } convolution_param')
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER + 'train_state { stage: "wide" } test_state { level: 1 stage: "a" }')
    (finding,) = [problem.finding for problem in inspect(folder).problems if problem.severity == "error"]
    assert 'no layer before it makes bottom "conv"' in finding
    assert finding.endswith(
        '; layer "conv" makes it, but its include/exclude rules leave it out of phase TEST (level 1, stages: a)'
    )


@pytest.mark.parametrize(("max_iter", "is_noted"), [(999, True), (1001, False)])
def test_a_run_shorter_than_the_window_of_batch_norm_is_noted(folder, max_iter, is_noted):
    normed = 'layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }\nlayer { name: "relu"'
    (folder / "net.prototxt").write_text(NET.replace('layer { name: "relu"', normed))
    problems = inspect(folder, overrides=f"max_iter: {max_iter}").problems
    notes = [problem.finding for problem in problems if "stored statistics average all" in problem.finding]
    message = (
        "train net: BatchNorm's stored statistics average all 999 minibatches of the run (moving_average_fraction "
        "0.999), so tests fall behind the training loss, as in Caffe; give more minibatches or a smaller fraction"
    )
    assert notes == [message] * is_noted
