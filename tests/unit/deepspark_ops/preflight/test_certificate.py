import json
import subprocess
import tempfile

import pytest

from caffe_import.parity.case import RECORDED_CASES
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.preflight import certificate
from deepspark_ops.preflight.certificate import certified, write_certificate
from deepspark_ops.preflight.report import LayerReport, NetReport, PreflightReport
from deepspark_ops.preflight.table import report_lines


def check_report(*types):
    layers = tuple(
        LayerReport(
            name=kind,
            type=kind,
            bottoms=(),
            tops=(kind,),
            top_shapes=((1,),),
            n_params=0,
            flops=0,
            activation_bytes=4,
            notes=(),
        )
        for kind in types
    )
    net = NetReport(
        title="train",
        phase="TRAIN",
        name="n",
        batch_size=1,
        layers=layers,
        data=(),
        n_params=0,
        flops=0,
        activation_bytes=4,
    )
    return PreflightReport(
        format_version=4,
        solver="s",
        nets=(net,),
        formats=(),
        work=None,
        problems=(),
        layer_types=tuple(sorted(types)),
    )


@pytest.fixture(autouse=True)
def no_case_has_passed_before(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("host")))


@pytest.fixture
def child(monkeypatch):
    """Answer for the child process: case name -> (status, worst); and what it was asked."""
    answers, computed = {}, []

    def run(command, **_):
        computed.extend(command[command.index("--only") + 1 :])
        outcomes = [
            {"name": name, "status": status, "worst": worst, "faults": ["y: too far"] if status != "passed" else []}
            for name in computed
            for status, worst in [answers.get(name, ("passed", 1e-7))]
        ]
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps({"cases": outcomes}), stderr="")

    monkeypatch.setattr(certificate.subprocess, "run", run)
    return answers, computed


def recorded(kind):
    cases = json.loads((RECORDED_CASES / "index.json").read_text())["cases"]
    return [case["name"] for case in cases if case["kind"] == "layer" and case.get("layer_type") == kind]


def test_types_of_the_net_are_compared_and_no_others(child):
    answers, computed = child
    pooling, *_ = recorded("Pooling")
    answers[pooling] = ("passed", 3e-6)
    rows = certified(check_report("ReLU", "Pooling", "Data"), None).parity
    assert [row.layer_type for row in rows] == ["Data", "Pooling", "ReLU"]
    assert [row.n_cases for row in rows] == [0, len(recorded("Pooling")), len(recorded("ReLU"))]
    assert [row.largest_error for row in rows] == [None, 3e-6, 1e-7]
    assert computed == recorded("Pooling") + recorded("ReLU")


def test_case_that_fails_is_an_error(child):
    answers, _ = child
    name = recorded("ReLU")[0]
    answers[name] = ("failed", 0.5)
    report = certified(check_report("ReLU"), None)
    assert report.errors == (f"parity: case {name}: failed: y: too far",)
    assert report.parity[0].n_passed == report.parity[0].n_cases - 1
    assert report.parity[0].largest_error == 0.5


def test_lines_for_a_log_hold_the_comparison(child):
    text = "\n".join(report_lines(certified(check_report("ReLU", "Data"), None)))
    assert "largest relative error" in text
    assert "1.0e-07" in text
    assert "not recorded" in text


@pytest.mark.parametrize(("on_gpu", "device", "visible"), [(False, "CPU:0", "-1"), (True, "GPU:0", "2,3")])
def test_the_comparison_touches_a_gpu_only_if_it_is_to(monkeypatch, on_gpu, device, visible):
    calls = []

    def run(command, *, env, **_):
        calls.append((command[command.index("--device") + 1], env["CUDA_VISIBLE_DEVICES"]))
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="stop here")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr(certificate.subprocess, "run", run)
    with pytest.raises(DeepSparkError, match="stop here"):
        certified(check_report("ReLU"), None, on_gpu=on_gpu)
    assert calls == [(device, visible)]


def test_net_without_recorded_types_starts_no_process(child):
    assert certified(check_report("Data"), None).parity[0].n_cases == 0
    assert child[1] == []


def test_folder_without_cases_is_a_wrong_option(tmp_path):
    with pytest.raises(ConfigError, match=r"parity_cases=.*: no recorded cases: .*give a folder with an index\.json"):
        certified(check_report("ReLU"), tmp_path)


def test_comparison_that_dies_says_its_last_line(monkeypatch):
    dead = subprocess.CompletedProcess([], -9, stdout="", stderr="one\nout of memory\n")
    monkeypatch.setattr(certificate.subprocess, "run", lambda *_, **__: dead)
    with pytest.raises(DeepSparkError, match="ended with code -9 and no result: out of memory"):
        certified(check_report("ReLU"), None)


def test_a_runs_certificate_names_types_cases_and_failures(child, tmp_path):
    child[0][recorded("ReLU")[0]] = ("failed", 0.5)
    write_certificate(certified(check_report("ReLU", "Data"), None), None, tmp_path / "parity.json")
    certificate = json.loads((tmp_path / "parity.json").read_text())
    assert certificate["format_version"] == 2
    assert certificate["cases"] == str(RECORDED_CASES)
    assert [row["layer_type"] for row in certificate["parity"]] == ["Data", "ReLU"]
    assert len(certificate["failed"]) == 1


def test_a_passed_case_is_not_computed_again_and_a_failed_one_is(child):
    answers, computed = child
    failing, *passing = recorded("ReLU")
    answers[failing], answers[passing[0]] = ("failed", 0.5), ("passed", 3e-6)
    first = certified(check_report("ReLU"), None)
    computed.clear()
    second = certified(check_report("ReLU", "Pooling"), None)
    assert computed == [*recorded("Pooling"), failing]
    assert second.errors == first.errors
    assert second.parity[1] == first.parity[0]


def test_cases_on_a_gpu_are_computed_each_time(child):
    certified(check_report("ReLU"), None)
    for _ in range(2):
        child[1].clear()
        certified(check_report("ReLU"), None, on_gpu=True)
        assert child[1] == recorded("ReLU")
