"""Stage plan end to end: a solver's file in, predictions and advice out."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.planning import step_time
from deepspark_ops.planning.net_size import measure_net
from deepspark_ops.planning.plan import BEARABLE_LOAD, BEARABLE_SHARE, make_plan
from deepspark_ops.planning.plan_picture import plan_svg, write_plan_picture
from deepspark_ops.planning.plan_view import plan_view
from tests.paths import ROOT
from tests.reference.command_line import invoke

CIFAR = Path("examples", "cifar10", "solver.prototxt")
LENET = Path("examples", "digits", "lenet_solver.prototxt")
UNKNOWN = """
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "somewhere/else" batch_size: 7 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No dataset lies in the working directory or beside the examples."""
    monkeypatch.chdir(tmp_path)
    for example in ("cifar10", "digits"):
        shutil.copytree(ROOT / "examples" / example, tmp_path / "examples" / example)
    (tmp_path / "net.prototxt").write_text(UNKNOWN)
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 9 iter_size: 3'
    )


def cluster_plan(**options):
    return make_plan(PlanConfig(**{"solver": CIFAR, "step_ms": 50.0, "workers": "1,8,64,1000", **options}))


def test_net_without_its_data_is_known_by_name():
    size = measure_net(PlanConfig(solver=CIFAR))
    # conv 32x3x5x5, 32x32x5x5, 64x32x5x5, ip 64x1024, 10x64, and their biases
    assert size.n_params == 2400 + 32 + 25600 + 32 + 51200 + 64 + 65536 + 64 + 640 + 10 == 145_578
    assert (size.images_per_step, size.epoch_images) == (100, 50_000)
    assert size.notes[0].startswith('the data of layer "cifar" are not here; by the name "cifar"')
    assert measure_net(PlanConfig(solver=LENET)).n_params == 431_080


def test_devices_of_a_worker_multiply_the_samples_of_a_minibatch():
    single, four = (measure_net(PlanConfig(solver=CIFAR, gpus_per_worker=count)) for count in (1, 4))
    assert (four.images_per_step, four.step_flops) == (4 * single.images_per_step, 4 * single.step_flops)
    rows = cluster_plan(gpus_per_worker=4).rows
    assert [row.images_per_s for row in rows] == pytest.approx([4 * row.images_per_s for row in cluster_plan().rows])


def test_net_with_unknown_data_asks_for_their_shape():
    solver = Path("solver.prototxt")
    with pytest.raises(ConfigError, match=r"or say what it will read: sample_shape, e\.g\. 3x32x32, and epoch_images"):
        measure_net(PlanConfig(solver=solver))
    size = measure_net(PlanConfig(solver=solver, sample_shape="1x4x5", epoch_images=70))
    assert (size.n_params, size.images_per_step, size.epoch_images) == (2 * 20 + 2, 21, 70)
    assert size.step_flops == 3 * 3 * 7 * 2 * 20 * 2  # thrice the forward pass, three passes of 7 samples
    with pytest.raises(DataError, match="none"):
        measure_net(PlanConfig(solver=CIFAR, dataset=Path("none")))


def test_rows_follow_from_the_clock():
    report = cluster_plan(comm_period=1, straggler_spread=0.0, step_jitter=0.0)
    single, *_, most = report.rows
    # One worker only pushes: 582,312 bytes at 10 Gbit/s, three control calls of 145 us, six ways of 50 us;
    # 300 us in its loop, and the vector from memory at 1.9 GB/s.
    own_s = 300e-6 + 4 * 145_578 / 1.9e9
    exchange_s = 8 * 4 * 145_578 / 10e9 + 3 * 145e-6 + 6 * 50e-6 + own_s
    assert single.exchange_ms == pytest.approx(1e3 * exchange_s, rel=1e-3)
    assert single.images_per_s == pytest.approx(100 / (0.05 + exchange_s), rel=1e-3)
    assert single.epoch_s == pytest.approx(50_000 / single.images_per_s)
    service_s = 8 * 145_578 / 2.4e9 + 1.5 * 145e-6
    assert most.images_per_s == pytest.approx(100 / service_s, rel=1e-3)  # past saturation
    assert most.server_load == pytest.approx(1.0)
    assert most.staleness == pytest.approx(999, abs=1)
    assert report.saturation_workers == int((0.05 + service_s + 2 * 145e-6 + 8 * 50e-6 + own_s) / service_s)


def test_auto_period_grows_with_the_queue():
    rows = {row.workers: row for row in cluster_plan(workers="1,8,64,1000,5000").rows}
    # 1.8 ms of 50 ms are 4 %; of one worker, for whom nothing depends on it, 2 % after two minibatches.
    assert [rows[p].comm_period for p in (1, 8, 64)] == [2, 1, 1]
    assert 8 <= rows[1000].comm_period <= 32
    assert rows[1000].exchange_share <= 0.1
    assert rows[5000].comm_period == 64


def test_tau_is_never_below_what_training_would_choose():
    report = cluster_plan(workers="1,8", strategy="downpour", step_ms=50.0)
    single, crew = report.rows
    assert single.comm_period < 10 <= crew.comm_period
    assert [advice.row.comm_period for advice in report.advice if advice.row.workers > 1] == [10]


def test_tau_of_workers_that_wait_for_each_other_follows_the_cost_and_not_the_waiting():
    fast, slow = (
        [row.comm_period for row in cluster_plan(workers="8,64", strategy="local_sgd", bandwidth_gbps=gbps).rows]
        for gbps in (100.0, 0.1)
    )
    assert fast == [3, 3]
    assert slow[0] == slow[1] > 10


@pytest.mark.slow
def test_advice_is_fast_enough_or_says_that_nothing_is():
    *fits, excess = cluster_plan(workers="8,64,1000,5000").advice
    for advice in fits:
        assert advice.row.exchange_share <= BEARABLE_SHARE
        assert advice.row.server_load <= BEARABLE_LOAD
    assert fits[0].row.comm_period == 1
    assert "tau 1 is the most accurate" in fits[0].reason
    assert excess.row.server_load == pytest.approx(1.0)
    assert excess.reason.startswith("the center saturates at 4,")
    # Of 0.76 ms an exchange 0.47 are the link's and 0.44 the processes', side by side, and 0.29 control calls.
    assert "limited by its control calls" in excess.reason
    (slow,) = cluster_plan(workers="1000", bandwidth_gbps=1.0).advice
    assert "limited by its link" in slow.reason


def test_advice_takes_key_ranges_for_a_big_vector_and_a_fast_link():
    solver = Path("solver.prototxt")
    (advice,) = cluster_plan(
        solver=solver, sample_shape="3x1000x1000", workers="16", step_ms=500.0, bandwidth_gbps=200.0
    ).advice  # six million parameters
    assert advice.row.n_servers > 1
    assert "half as many key ranges it saturates at" in advice.reason
    (slow,) = cluster_plan(
        solver=solver, sample_shape="3x1000x1000", workers="64", step_ms=500.0, bandwidth_gbps=1.0
    ).advice
    assert slow.row.comm_period > 8  # key ranges share the link: they cannot help


def test_automatic_threads_are_the_share_of_the_hosts_cores():
    options = {"transport": "shm", "host_cores": 8, "step_ms": None, "workers": "1,2,8", "worker_cores": 1.0}
    single, two, eight = cluster_plan(**options).rows
    # By operations a worker with all eight cores is as fast as eight with a core each, but for their exchanges.
    assert single.images_per_s == pytest.approx(cluster_plan(**options, threads_per_worker=8).rows[0].images_per_s)
    assert two.images_per_s == pytest.approx(cluster_plan(**options, threads_per_worker=4).rows[1].images_per_s)
    assert eight.images_per_s == pytest.approx(cluster_plan(**options, threads_per_worker=1).rows[2].images_per_s)
    # How long a minibatch takes is not guessed again where it is known.
    options["step_ms"] = 50.0
    assert cluster_plan(**options).rows == cluster_plan(**options, threads_per_worker=1).rows
    # And each worker has one thread if the number of cores of its host is unknown.
    options = {"step_ms": None, "workers": "4"}
    assert cluster_plan(**options).rows == cluster_plan(**options, threads_per_worker=1).rows


def test_one_host_shares_its_cores():
    options = {"workers": "2,4", "transport": "shm", "comm_period": 10, "step_jitter": 0.0, "straggler_spread": 0.0}
    two, four = cluster_plan(**options, host_cores=2, worker_cores=1.0).rows
    assert two.efficiency == pytest.approx(1.0, abs=0.02)
    assert four.images_per_s == pytest.approx(two.images_per_s, rel=0.02)
    greedy = cluster_plan(**options, host_cores=2, worker_cores=1.25).rows
    assert two.images_per_s / greedy[0].images_per_s == pytest.approx(1.25, rel=0.01)
    assert cluster_plan(workers="2", n_servers=50).rows[0].n_servers == 2  # 145,578 parameters are two chunks


def test_strategy_in_rounds_loses_to_stragglers():
    asynchronous, rounds = (
        cluster_plan(workers="64", straggler_spread=0.2, strategy=name, comm_period=1).rows[0]
        for name in ("easgd", "sync")
    )
    assert rounds.staleness == 0.0
    assert asynchronous.efficiency > 0.9
    assert rounds.efficiency < 0.8


def test_step_time_may_be_that_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(step_time, "run_step_time", lambda run, images: 0.05)
    report = cluster_plan(step_ms=None, from_run=tmp_path)
    assert (report.step_ms, report.step_source) == (pytest.approx(50.0), "run")


def test_estimate_is_marked_as_one():
    report = cluster_plan(step_ms=None)
    assert report.step_source == "estimate"
    assert any("may be off by a factor of two" in note for note in report.notes)
    console = Console(width=150)
    with console.capture() as capture:
        console.print(plan_view(report))
    assert "an estimate by operations" in capture.get()


def test_numbers_of_workers_with_the_same_measured_loss_share_a_line():
    console = Console(width=300)
    with console.capture() as capture:
        console.print(plan_view(cluster_plan(workers="1,8,64,1000,10000")))
    lines = [line.strip() for line in capture.get().splitlines() if "after as many minibatches" in line]
    assert [line.partition(": after")[0] for line in lines] == [
        "8 workers",
        "64, 1,000, 10,000 workers (measured with 32)",
    ]


def test_rows_beyond_what_was_measured_are_marked():
    console = Console(width=150)
    with console.capture() as capture:
        console.print(plan_view(cluster_plan(workers="1000,1001")))
    shown = [line.split()[:2] for line in capture.get().splitlines()]
    assert shown.count(["1,001", "*"]) == 2, "in both tables"
    assert ["1,000", "*"] not in shown
    assert "rows with * are arithmetic alone: a server was measured with 1,000 scripted workers" in capture.get()
    assert not any("*" in note for note in cluster_plan(workers="1000").notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "1;2"}, "workers='1;2': must be whole numbers or ranges with commas, like 1,2,4..16"),
        ({"workers": "0,2"}, "workers=0,2: each must be 1 to 100000"),
        ({"step_ms": 1.0, "from_run": "r"}, "step_ms=1 and from_run=r: give one"),
        ({"transport": "shm", "n_servers": 2}, "transport=shm: workers write the center itself"),
        ({"host_cores": 2}, "host_cores=2: with transport=socket every worker has a host of its own"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ConfigError) as error:
        parse_config(PlanConfig, {"solver": "s", **options})
    assert message in str(error.value)


def test_strategy_that_exchanges_every_minibatch_refuses_tau():
    with pytest.raises(ConfigError, match="comm_period=5: strategy sync exchanges after every minibatch; allowed: 1"):
        cluster_plan(strategy="sync", comm_period=5)


def test_picture_is_well_formed_and_has_a_mark_per_row(tmp_path):
    report = cluster_plan()
    root = ElementTree.fromstring(plan_svg(report))
    svg = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{svg}svg")) == 4
    assert len(root.findall(f".//{svg}circle")) == 4 * 2 * len(report.rows)
    with pytest.raises(ConfigError, match=r"plot=p\.png: is drawn as SVG"):
        write_plan_picture(report, Path("p.png"))
    with pytest.raises(ConfigError, match="cannot be written"):
        write_plan_picture(report, tmp_path / "net.prototxt" / "p.svg")


@pytest.mark.slow
def test_command_of_the_issue(monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = ["plan", "examples/cifar10/solver.prototxt", "--workers", "1,8,64,1000,10000"]
    arguments += ["--step-ms", "50", "--bandwidth-gbps", "10"]
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [row["workers"] for row in report["rows"]] == [1, 8, 64, 1000, 10000]
    assert {"images_per_s", "staleness", "server_load", "epoch_s"} <= set(report["rows"][0])
    arguments[arguments.index("--workers") + 1] = "1,1000"
    table = invoke(*arguments).stdout
    assert "What to choose" in table
    assert "1,000" in table


def test_hosts_with_a_center_load_the_server_with_a_quarter_of_the_vectors():
    flat, tree = (cluster_plan(comm_period=1, workers_per_host=count, control_us=1e-3).rows for count in (1, 4))
    assert tree[2].server_load == pytest.approx(flat[2].server_load / 4, rel=0.1)
    assert tree[3].images_per_s > 2 * flat[3].images_per_s
    with pytest.raises(ConfigError, match="workers_per_host=4: strategy sync has no tree of centers; strat"):
        cluster_plan(strategy="sync", workers_per_host=4)
