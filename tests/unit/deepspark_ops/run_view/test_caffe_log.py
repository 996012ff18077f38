"""A run's events as Caffe's own log, read by parsers that are written after Caffe's scripts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.caffe_log import caffe_log_lines
from tests.unit.deepspark_ops.run_view.run_events import loss, stage, started

NET = """
name: "LeNet"
layer { name: "d" type: "Input" top: "data" top: "label" input_param { shape { dim: 2 } shape { dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: WEIGHT }
"""
SOLVER = 'net: "/gone/net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1000 display: 100'
BEGAN = 1_795_690_174.004  # 2026-11-26 10:49:34 UTC


def logged_run(folder: Path, events: Sequence[Event], *, net: str = NET, weight: str = "1") -> RunPaths:
    run = RunPaths(folder)
    run.net.write_text(net.replace("WEIGHT", weight))
    run.solver.write_text(SOLVER)
    run.events.write_text("".join(f"{event.to_json()}\n" for event in events))
    return run


def evaluation(clock, seconds, *, net=0, **outputs):
    return Event("evaluation", clock, 0, {"test_net": net, **outputs, "seconds": 0.25}, BEGAN + seconds)


def one_worker():
    return (
        started(0, BEGAN, n_workers=1),
        Event("note", 0, DRIVER, {"text": "weights from fillers"}, BEGAN),
        Event("worker_joined", 0, 0, {"transport": "none"}, BEGAN + 1),
        evaluation(0, 2.0, accuracy=0.10277777910232544, loss=2.3316600918769836),
        loss(0, 0, BEGAN + 2.5, loss=2.37462, learning_rate=0.05000000074505806),
        loss(0, 100, BEGAN + 4.5, loss=1e-05, learning_rate=1e-06),
        loss(0, 400, BEGAN + 8.5, loss=0.378705, learning_rate=0.01),
        evaluation(400, 9.0, accuracy=0.9222221970558167, loss=0.316602922976017),
        Event("snapshot", 500, DRIVER, {"weights": "/runs/a/snapshots/lenet_iter_500.caffemodel"}, BEGAN + 10),
        loss(0, 1000, BEGAN + 20, loss=0.25),
        evaluation(1000, 21.0, accuracy=0.975, loss=0.0625),
        stage("finished", 1000, BEGAN + 22),
    )


# --- Readers after Caffe's scripts ---


def time_of(line: str, year: int) -> datetime.datetime:
    """extract_seconds.py: ``I0210 13:39:22.381027 25210 solver.cpp:204] Iteration 100, lr = 0.00992565``."""
    date, time = line.split()[:2]
    clock, _, fraction = time.partition(".")
    hour, minute, second = (int(part) for part in clock.split(":"))
    return datetime.datetime(year, int(date[1:3]), int(date[3:]), hour, minute, second, int(fraction))


def rows_of(lines: Iterable[str], kind: str, year: int = 2026) -> list[dict[str, float]]:
    """parse_log.py: a row for each iteration with outputs of ``kind``, the time since the line with ``Solving``."""
    lines = iter(lines)
    began = last = next(time_of(line, year) for line in lines if "Solving" in line)
    iteration, rate, rows = -1.0, float("nan"), []
    for line in lines:
        if match := re.search(r"Iteration (\d+)", line):
            iteration = float(match[1])
        if iteration == -1:
            continue
        time = time_of(line, year)
        if time.month < last.month:
            year += 1
            time = time_of(line, year)
        last = time
        if match := re.search(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)", line):
            rate = float(match[1])
        if match := re.search(kind + r" net output #(\d+): (\S+) = ([\.\deE+-]+)", line):
            if not rows or rows[-1]["NumIters"] != iteration:
                rows.append({"NumIters": iteration, "Seconds": (time - began).total_seconds(), "LearningRate": rate})
            rows[-1][match[2]] = float(match[3])
    if len(rows) > 1:
        rows[0]["LearningRate"] = rows[1]["LearningRate"]
    return rows


def columns_of(lines: Sequence[str]) -> dict[str, list[tuple[str, ...]]]:
    """parse_log.sh, which plot_training_log.py calls: iteration, loss and rate; iteration and the first two outputs."""
    losses = [line for line in lines if ", loss = " in line]
    tests = [line for line in lines if "Testing net" in line]
    column = {index: [line.split()[10] for line in lines if f"Test net output #{index}" in line] for index in (0, 1)}
    return {
        "train": list(
            zip(
                [re.sub(r".*Iteration (\d*).*", r"\1", line) for line in losses],
                [line.split("=")[1].strip() for line in losses],
                [line.split()[8] for line in lines if ", lr = " in line],
                strict=False,  # the last line has no rate
            )
        ),
        "test": list(
            zip([re.sub(r".*Iteration (\d*).*", r"\1", line) for line in tests], *column.values(), strict=True)
        ),
    }


# --- One worker ---


def test_parse_log_reads_the_values_of_the_events(tmp_path: Path) -> None:
    lines = list(caffe_log_lines(logged_run(tmp_path, one_worker())))
    assert rows_of(lines, "Train") == [
        {"NumIters": 0.0, "Seconds": 2.5, "LearningRate": 0.05000000074505806, "loss": 2.37462},
        {"NumIters": 100.0, "Seconds": 4.5, "LearningRate": 0.05000000074505806, "loss": 1e-05},
        {"NumIters": 400.0, "Seconds": 8.5, "LearningRate": 1e-06, "loss": 0.378705},
    ]
    test_rows = [(row["NumIters"], row["Seconds"], row["accuracy"], row["loss"]) for row in rows_of(lines, "Test")]
    assert test_rows == [
        (0.0, 2.0, 0.10277777910232544, 2.3316600918769836),
        (400.0, 9.0, 0.9222221970558167, 0.316602922976017),
        (1000.0, 21.0, 0.975, 0.0625),
    ]


def test_the_script_behind_plot_training_log_reads_its_columns(tmp_path: Path) -> None:
    columns = columns_of(list(caffe_log_lines(logged_run(tmp_path, one_worker()))))
    assert columns["train"] == [
        ("0", "2.37462", "0.05000000074505806"),
        ("100", "1e-05", "1e-06"),
        ("400", "0.378705", "0.01"),
    ]
    assert columns["test"][0] == ("0", "0.10277777910232544", "2.3316600918769836")
    assert [row[0] for row in columns["test"]] == ["0", "400", "1000"]


def test_the_lines_are_those_of_caffe(tmp_path: Path) -> None:
    lines = list(caffe_log_lines(logged_run(tmp_path, one_worker())))
    assert lines[:8] == [
        "I1126 10:49:34.004000     0 solver.cpp:272] Solving LeNet",
        "I1126 10:49:34.004000     0 solver.cpp:273] Learning Rate Policy: fixed",
        "I1126 10:49:35.754000     0 solver.cpp:330] Iteration 0, Testing net (#0)",
        "I1126 10:49:36.004000     0 solver.cpp:397]     Test net output #0: accuracy = 0.10277777910232544",
        "I1126 10:49:36.004000     0 solver.cpp:397]     Test net output #1: loss = 2.3316600918769836"
        " (* 1 = 2.3316600918769836 loss)",
        "I1126 10:49:36.504000     0 solver.cpp:218] Iteration 0 (0 iter/s, 2.5s/100 iters), loss = 2.37462",
        "I1126 10:49:36.504000     0 solver.cpp:237]     Train net output #0: loss = 2.37462 (* 1 = 2.37462 loss)",
        "I1126 10:49:36.504000     0 sgd_solver.cpp:105] Iteration 0, lr = 0.05000000074505806",
    ]
    assert "] Iteration 100 (50 iter/s, 2s/100 iters), loss = 1e-05" in lines[8]
    assert "] Iteration 400 (75 iter/s, 4s/100 iters), loss = 0.378705" in lines[11]
    assert [line.partition("] ")[2] for line in lines[-6:]] == [
        "Snapshotting to binary proto file /runs/a/snapshots/lenet_iter_500.caffemodel",
        "Iteration 1000, loss = 0.25",
        "Iteration 1000, Testing net (#0)",
        "    Test net output #0: accuracy = 0.975",
        "    Test net output #1: loss = 0.0625 (* 1 = 0.0625 loss)",
        "Optimization Done.",
    ]


def test_outputs_have_their_weights_and_several_values(tmp_path: Path) -> None:
    events = (
        started(0, BEGAN, n_workers=1),
        loss(0, 0, BEGAN + 1, loss=0.5, outputs={"loss": 2.0}),
        evaluation(0, 2.0, few=[[0.5, "nan"]], large={"shape": [200], "mean": 1.0, "min": 0.0, "max": 2.0}, loss=4.0),
        loss(0, 100, BEGAN + 3, loss="nan", outputs={"loss": "nan"}),
    )
    lines = [line.partition("] ")[2] for line in caffe_log_lines(logged_run(tmp_path, events, weight="0.25"))]
    assert "    Train net output #0: loss = 2.0 (* 0.25 = 0.5 loss)" in lines
    assert lines[6:10] == [
        "    Test net output #0: few = 0.5",
        "    Test net output #1: few = nan",
        "    Test net outputs #2 to #201: large has 200 values, mean 1.0, from 0.0 to 2.0",
        "    Test net output #202: loss = 4.0 (* 0.25 = 1 loss)",
    ]
    assert "Iteration 100 (50 iter/s, 2s/100 iters), loss = nan" in lines
    assert "    Train net output #0: loss = nan (* 0.25 = nan loss)" in lines


def test_test_nets_of_their_own_have_their_weights(tmp_path: Path) -> None:
    run = logged_run(tmp_path, (started(0, BEGAN, n_workers=1), evaluation(0, 1.0, net=1, accuracy=0.5, loss=2.0)))
    run.test_net(1).write_text(NET.replace("WEIGHT", "3"))
    lines = [line.partition("] ")[2] for line in caffe_log_lines(run)]
    assert lines[2] == "Iteration 0, Testing net (#1)"
    assert lines[4] == "    Test net output #1: loss = 2.0 (* 3 = 6 loss)"


# --- Several workers, several starts ---


def test_several_workers_are_stated_and_every_report_is_a_row(tmp_path: Path) -> None:
    events = (
        started(0, BEGAN, n_workers=2),
        loss(0, 0, BEGAN + 1, loss=2.0),
        loss(1, 1, BEGAN + 1.5, loss=2.5),
        loss(0, 105, BEGAN + 3, loss=1.0),
        loss(1, 102, BEGAN + 3, loss=1.5),
    )
    lines = list(caffe_log_lines(logged_run(tmp_path, events)))
    assert lines[0].endswith(
        "] 2 workers, strategy easgd: an iteration is a minibatch of any worker, a loss is of one worker; the number"
        " behind the time is the worker's"
    )
    assert [(row["NumIters"], row["loss"]) for row in rows_of(lines, "Train")] == [
        (0, 2.0),
        (1, 2.5),
        (105, 1.0),
        (102, 1.5),
    ]
    assert [line.split()[2] for line in lines if ", loss = " in line] == ["0", "1", "0", "1"]


def test_what_a_second_start_repeats_is_left_out(tmp_path: Path) -> None:
    events = (
        started(0, BEGAN, n_workers=1),
        loss(0, 0, BEGAN + 1, loss=2.0),
        loss(0, 400, BEGAN + 2, loss=1.0),
        evaluation(400, 2.5, accuracy=0.5, loss=1.0),
        loss(0, 500, BEGAN + 3, loss=9.0),
        stage("stopped", 550, BEGAN + 4),
        started(400, BEGAN + 60, n_workers=1),
        loss(0, 400, BEGAN + 61, loss=1.0),
        loss(0, 500, BEGAN + 62, loss=0.5),
    )
    lines = list(caffe_log_lines(logged_run(tmp_path, events)))
    assert [(row["NumIters"], row["loss"]) for row in rows_of(lines, "Train")] == [(0, 2.0), (400, 1.0), (500, 0.5)]
    assert sum("Restoring previous solver status, iteration 400" in line for line in lines) == 1
    assert sum("Solving" in line for line in lines) == 1
    assert "(0 iter/s, 1s/100 iters)" in next(line for line in lines if "Iteration 400 (" in line)


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_seconds_do_not_jump_over_the_end_of_a_year(tmp_path: Path, late: float) -> None:
    new_year = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC).timestamp()
    events = (
        started(0, new_year - 10, n_workers=2),
        loss(0, 0, new_year + 1, loss=2.0),
        loss(1, 1, new_year + 1 - late, loss=2.0),  # a report that came later than the report of a later step
        loss(0, 100, new_year + 2, loss=1.0),
    )
    lines = list(caffe_log_lines(logged_run(tmp_path, events)))
    assert [row["Seconds"] for row in rows_of(lines, "Train")] == [11.0, 11.0, 12.0]
