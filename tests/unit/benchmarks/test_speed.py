"""Contenders, order and table of ``make bench``; contenders are scripts with planned answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.speed import __main__ as bench
from benchmarks.speed import page
from benchmarks.speed.kernels import kernel_share
from benchmarks.speed.nets import NETS, build, description, feeds, forward_net, read_message, scores_blob
from benchmarks.speed.race import ContenderError, Mode, Team, block_steps, race, turns
from tests.paths import ROOT

CONTENDER = """
import json, sys, time
name, diary, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
print(json.dumps({"n_weights": 3, "first_loss": 0.5, "peak_mib": 10}), flush=True)
for line in sys.stdin:
    kind, n_steps = line.split()
    with open(diary, "a") as file:
        file.write(f"{time.monotonic()} {name} {kind} {n_steps} begin\\n")
    time.sleep(0.02)
    with open(diary, "a") as file:
        file.write(f"{time.monotonic()} {name} {kind} {n_steps} end\\n")
    seconds = plan[kind].pop(0) * int(n_steps)
    print(json.dumps({"seconds": seconds, "cpu_seconds": 2 * seconds}), flush=True)
"""

Make = Callable[..., Team]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def contender(name: str, steps: list[float], forwards: list[float], n_processes: int = 1) -> Team:
        plan = json.dumps({"step": steps, "forward": forwards})
        command = [sys.executable, "-c", CONTENDER, name, str(tmp_path / "diary"), plan]
        return Team(name, command, Mode(n_processes, 1), tmp_path / f"{name}.log")

    return contender


def test_every_round_has_all_contenders_and_begins_with_another() -> None:
    assert turns(["a", "b", "c"], 4) == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize(("seconds", "multiple", "steps"), [(0.011, 10, 90), (4.0, 1, 1), (0.3, 1, 3), (5.0, 10, 10)])
def test_a_block_lasts_about_as_long_as_wanted(seconds: float, multiple: int, steps: int) -> None:
    assert block_steps(seconds, 1.0, multiple) == steps


def test_medians_are_those_of_the_rounds_after_the_first(make: Make) -> None:
    # Two blocks of the leader decide the steps (0.1 s each: ten in a second); a round warms up, three rounds count.
    contender = make("ours", [0.1, 0.1, 9.0, 0.2, 0.4, 0.5], [0.1, 0.1, 9.0, 0.1, 0.1, 0.1])
    peer = make("peer", [9.0, 0.5, 0.8, 0.1], [9.0, 1.0, 2.0, 4.0])
    result = race([contender, peer], "ours", 8, multiple=1, block_s=1.0, n_rounds=3)
    assert result["n_steps"] == {"step": 10, "forward": 10}
    assert result["contenders"]["ours"]["step"]["samples_per_s"] == pytest.approx(8 / 0.4)
    assert result["contenders"]["ours"]["step"]["samples_per_cpu_s"] == pytest.approx(8 / 0.8)
    assert result["contenders"]["peer"]["step"]["samples_per_s"] == pytest.approx(8 / 0.5)
    assert result["contenders"]["peer"]["forward"]["samples_per_s"] == pytest.approx(8 / 2.0)
    assert result["contenders"]["peer"]["n_weights"] == 3


def test_blocks_of_two_contenders_never_overlap_and_those_of_a_pair_do(make: Make, tmp_path: Path) -> None:
    teams = [make(name, [1.0] * 9, [1.0] * 9, n_processes=2) for name in ("ours", "peer")]
    result = race(teams, "ours", 1, multiple=1, block_s=1.0, n_rounds=2)
    assert result["contenders"]["ours"]["step"]["samples_per_s"] == pytest.approx(2.0)  # both processes' samples
    assert result["contenders"]["ours"]["peak_mib"] == 20
    lines = sorted(
        (line.split() for line in (tmp_path / "diary").read_text().splitlines()), key=lambda line: float(line[0])
    )
    running: list[str] = []
    together = 0
    for _, name, _, _, event in lines:
        if event == "begin":
            assert set(running) <= {name}
            running.append(name)
            together += len(running) == 2
        else:
            running.remove(name)
    assert together > 0


def test_a_contender_that_fails_is_left_out_and_said(make: Make, tmp_path: Path) -> None:
    def broken() -> Team:
        return Team("broken", [sys.executable, "-c", "raise SystemExit('no such net')"], Mode(1, 1), tmp_path / "log")

    teams = [make("ours", [1.0] * 4, [1.0] * 4), broken(), make("ends", [1.0] * 4, [1.0])]
    contenders = race(teams, "ours", 1, multiple=1, block_s=1.0, n_rounds=1)["contenders"]
    assert contenders["broken"]["failure"].endswith("no such net")
    assert contenders["ends"]["failure"].endswith("IndexError: pop from empty list")
    assert contenders["ours"]["step"]["samples_per_s"] == pytest.approx(1.0)
    with pytest.raises(ContenderError, match="broken ended with code 1"):
        race([broken()], "broken", 1, multiple=1, block_s=1.0, n_rounds=1)


def test_a_contender_of_this_repository_speaks_the_protocol(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "benchmarks" / "peers")!r})
from serve import serve
print("a kernel's line while the net is compiled")
def step(n):
    print("a library's line")
    time.sleep(0.01 * n)
serve({{"step": step, "forward": lambda n: None}}, {{}}, lambda: 1.5)
"""
    team = Team("it", [sys.executable, "-u", "-c", script], Mode(1, 1), tmp_path / "log")
    with team:
        team.wait_ready()
        assert team.facts["first_loss"] == 1.5
        began = time.monotonic()
        block_s = team.block("step", 3).seconds
        assert 0.03 <= block_s < time.monotonic() - began
    log = (tmp_path / "log").read_text()
    assert "a library's line" in log
    assert "while the net is compiled" in log


def test_other_weights_or_another_first_loss_are_refused() -> None:
    own_facts = {"n_weights": 10, "first_loss": 2.0}
    failed = {"failure": "no compiler"}
    bench.check_same_net({"ours": own_facts, "floor": {}, "a": dict(own_facts), "b": failed}, has_dropout=False)
    with pytest.raises(ValueError, match="a is another net than ours: 11 weights"):
        bench.check_same_net({"ours": own_facts, "a": {"n_weights": 11, "first_loss": 2.0}}, has_dropout=True)
    other = {"n_weights": 10, "first_loss": 2.1}
    bench.check_same_net({"ours": own_facts, "a": other}, has_dropout=True)
    with pytest.raises(ValueError, match=r"first loss of 2\.1000"):
        bench.check_same_net({"ours": own_facts, "a": other}, has_dropout=False)


def test_nets_without_a_result_come_first_then_the_oldest() -> None:
    results = {"lenet": {"date": "2026-01-02 03:04 UTC"}, "mlp": {"date": "2025-12-31 03:04 UTC"}}
    assert bench.oldest_first(["lenet", "mlp", "lstm"], results) == ["lstm", "mlp", "lenet"]


def test_kernels_are_added_up_by_implementation() -> None:
    lines = [
        "onednn_verbose,v1,info,cpu,runtime:threadpool",
        "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,f,,alg:x,mb64,1.5",
        "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,f,,alg:x,mb64,0.5",
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,f,,,64x800:800x500,1",
        "onednn_verbose,v1,primitive,create:cache_hit,cpu,matmul,brg_matmul:avx512_core,undef,f,,,64x800:800x500,7",
        "something else",
    ]
    share = kernel_share(lines, 0.01)
    assert share["outside"] == 0.7
    assert share["kernels"] == {"convolution brg_conv_fwd:avx512_core": 0.2, "matmul brg_matmul:avx512_core": 0.1}


def contender(step: float, forward: float, **facts: object) -> dict[str, object]:
    rates = {kind: {"samples_per_s": rate} for kind, rate in (("step", step), ("forward", forward))}
    return {**rates, "peak_mib": 512.4, **facts}


@pytest.fixture
def results() -> dict[str, object]:
    contenders = {
        "ours": contender(1500, 9.876),
        "floor": contender(3000, 19.752),
        "torch fused": contender(1000, 4.0),
        "keras jax": contender(800, 9.0),
        "keras tensorflow": {"failure": "ended"},
    }
    modes = {mode: {"n_steps": {}, "contenders": contenders} for mode in ("1x2", "2x1")}
    kernels = {"outside": 0.25, "kernels": {"convolution brg": 0.5}}
    facts = {"cpu": "A CPU, 2 cores", "date": "2026-01-02 03:04 UTC", "load_average_before": 0.04, "repeats": 3}
    return {"lenet": {**facts, "modes": modes, "kernels": kernels}}


def test_a_row_compares_with_the_best_peer_of_step_and_of_pass(results) -> None:
    pair, single = page.rows("lenet", results["lenet"])
    assert single == (
        "| LeNet (64) | 1 of 2 threads | 1,500 | 1,000 torch fused | 1.50 | 2.00"
        " | 9.88 | 9 keras jax | **1.10** | 2.00 | 512 | 512 |"
    )
    assert pair.startswith("| LeNet (64) | 2 of 1 thread | 1,500 | 1,000 torch fused | 1.50 |")


def test_a_missed_bar_is_said_with_where_the_time_goes(results) -> None:
    (line,) = page.reasons("lenet", results["lenet"])
    assert line == (
        "- LeNet: 25% of a step outside oneDNN's kernels (`convolution brg` 50%). Below its bar: forward 1 of 2 threads"
        " 1.10 (bar 1.2), forward 2 of 1 thread 1.10 (bar 1.2). The time of a step is"
        " mostly outside the convolutions and products."
    )


def test_the_table_replaces_what_is_between_the_marks(results) -> None:
    text = f"before\n{page.BEGIN}\nstale line\n{page.END}\nafter\n"
    once = page.with_table(text, page.table(results))
    assert once.startswith("before\n<!--")
    assert once.endswith("-->\nafter\n")
    assert "stale line" not in once
    assert "Machine: A CPU, 2 cores; 2026-01-02. Load before the start: LeNet 0.0, 3 repeats." in once
    assert "| LeNet | 1,500 | 3,000 | 800 | failed | 1,000 |" in once
    assert page.with_table(once, page.table(results)) == once
    with pytest.raises(ValueError, match="has no lines"):
        page.with_table("no marks", "")


def test_the_page_has_the_marks_and_the_picture_a_bar_per_ratio(results) -> None:
    assert page.with_table(page.PAGE.read_text(), "") != page.PAGE.read_text()
    root = ElementTree.fromstring(page.picture(results))
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("x")]
    widths = [float(rect.get("width")) for rect in bars]
    assert len(bars) == 4
    assert widths[0] / widths[2] == pytest.approx(1.5 / (9.876 / 9), rel=1e-3)


def test_nets_have_the_published_numbers_of_weights() -> None:
    # Units 1000; words 8801; an LSTM has four gates of inputs, units and a bias.
    lstm = 8801 * 1000 + 4 * 1000 * (1000 + 1000 + 1) + 8801 * (1000 + 1)
    counts = {name: description(NETS[name])["n_weights"] for name in ("cifar10_full", "mobilenet", "lstm")}
    assert counts == {"cifar10_full": 89_578, "mobilenet": 4_231_976, "lstm": lstm}


def test_fcn_has_an_output_of_the_size_of_its_image() -> None:
    spec = build(NETS["fcn8s"], read_message(NETS["fcn8s"]))
    assert spec.blob_shapes["score"] == (1, 21, 224, 224)


@pytest.mark.parametrize("name", list(NETS))
def test_every_net_is_described_whole(name: str) -> None:
    net = NETS[name]
    plain = json.loads(json.dumps(description(net)))
    assert sum(prod(shape) for layer in plain["layers"] for shape in layer["blobs"].values()) == plain["n_weights"]
    blobs = {plain["data"], "label", "cont"}
    for layer in plain["layers"]:
        assert set(layer["bottoms"]) <= blobs, layer["name"]
        blobs |= set(layer["tops"])
    spec = build(net, read_message(net))
    assert {blob: array.shape[1:] for blob, array in feeds(net, spec).items()} == dict(spec.inputs)
    assert spec.inputs[plain["data"]][1 if net.n_words else 0] == net.batch_size
    assert scores_blob(spec) in forward_net(net, spec).outputs
