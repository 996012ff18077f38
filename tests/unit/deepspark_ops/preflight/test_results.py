import h5py
import numpy as np
import pytest

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.table import report_lines

SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 4 snapshot: 4 {more}'
NET = """
name: "n"
{data}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 3 }} }}
{more}
"""
HDF5 = 'layer {{ name: "x" type: "HDF5Data" top: "x" top: "y" hdf5_data_param {{ source: "{list}" batch_size: 4 }} }}'
DUMMY = """layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } } }"""
EUCLIDEAN = 'layer { name: "l2" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "l2" }'
SOFTMAX = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }'


def inspect_net(folder, *, width=3, net=EUCLIDEAN, more="", data=HDF5, **options):
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"], file["y"] = np.zeros((8, 3), np.float32), np.zeros((8, width), np.float32)
    (folder / "list.txt").write_text(f"{folder / 'rows.h5'}\n")
    (folder / "solver.prototxt").write_text(SOLVER.format(more=more))
    (folder / "net.prototxt").write_text(
        NET.format(data=data.format(list=folder / "list.txt") if data is HDF5 else data, more=net)
    )
    return inspect_solver(CheckConfig(solver=folder / "solver.prototxt", **options))


def lines_of(report):
    text = "\n".join(report_lines(report))
    return [line.strip() for line in text.splitlines() if line.startswith(("evaluate", "export", "     and"))]


def test_a_net_of_one_phase_is_described_as_in_the_evaluation(tmp_path):
    report = inspect_net(tmp_path)
    (result,) = report.results
    assert (result.task, result.outputs, result.target) == ("regression", ("ip",), "y")
    evaluation, export = lines_of(report)
    assert evaluation.startswith(
        'evaluate: regression of blob "ip", target "y"; decided by layer "l2" (EuclideanLoss); gives RMSE'
    )
    assert export.startswith('export: blob "ip"; as saved_model, caffe')


def test_the_test_net_tells_where_there_is_one(tmp_path):
    of_phases = EUCLIDEAN.replace(" }", " include { phase: TRAIN } }") + SOFTMAX.replace(
        " }", " include { phase: TEST } }"
    )
    report = inspect_net(
        tmp_path,
        width=1,
        net=of_phases.replace('ip" bottom: "y', 'y" bottom: "y', 1),
        more="test_iter: 1 test_interval: 2",
    )
    assert [result.task for result in report.results] == ["classification"]
    assert 'export: blob "ip" through a softmax; as' in lines_of(report)[1]


def test_the_users_task_is_shown_or_refused_as_in_the_evaluation(tmp_path):
    report = inspect_net(tmp_path, task="multi_label", output_blob="ip", target_blob="y")
    assert [result.task for result in report.results] == ["multi_label"]
    wrong = inspect_net(tmp_path, output_blob="ipp")
    assert wrong.errors == ('evaluate: no blob "ipp" in net "n"; known: x, y, ip, l2; did you mean "ip"?',)


@pytest.mark.parametrize("net", [""])
def test_a_net_without_a_target_is_told_to_have_nothing_to_compare_with(tmp_path, net):
    report = inspect_net(tmp_path, width=2, net=net)
    assert report.results[0].target is None
    assert lines_of(report)[0].endswith("gives nothing, there is no target")


def test_a_net_without_samples_has_no_evaluation(tmp_path):
    report = inspect_net(tmp_path, data=DUMMY)
    assert (report.results, report.errors) == ((), ())
    assert report.no_result.startswith("the net has no data layer to feed in phase TEST")
