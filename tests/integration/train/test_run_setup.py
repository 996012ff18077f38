"""From config to run folder to start: with an ingested dataset, and every mistake that the driver can find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from caffe_import.errors import CaffeImportError
from caffe_import.files.caffemodel import read_caffemodel, write_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.initial_vector import initial_vector
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.exchange.strategies.base import configure
from deepspark_ops.planning.net_size import measure_net
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import mean_path, read_manifest
from deepspark_ops.train.driver.served_files import shipped_settings
from deepspark_ops.train.driver.training import train
from deepspark_ops.train.setup.folder_guard import nothing_left_on_error, prepared_files
from deepspark_ops.train.setup.run_setup import DEFAULT_SEED, load_run, prepare_run
from deepspark_ops.train.setup.side_outputs import refuse_lost_outputs
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.worker.run_copy import with_folder_on_host
from deepspark_ops.train.worker.task import loop_plan
from tests.integration.small_run import NET, SOLVER, make_dataset
from tests.integration.train.in_process import run_in_process
from tests.reference.dataset_files import put_manifest

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root)
    return root


def training_config(folder: Path, dataset: Path | None, *, net: str = NET, solver: str = SOLVER, **fields: object):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(solver.format(net=folder / "net.prototxt"))
    values = {"solver": folder / "solver.prototxt", "dataset": dataset, "run_dir": folder / "run", "n_workers": 1}
    return TrainConfig(**{**values, **fields})


def prepared(folder: Path, dataset: Path | None, **fields: object):
    run_setup = prepare_run(training_config(folder, dataset, **fields))
    run_setup.run.binding.close()
    return run_setup


def start_refusal(folder: Path, dataset: Path | None, **fields: object) -> str:
    config = training_config(folder, dataset, **fields)
    with pytest.raises((DeepSparkError, CaffeImportError)) as raised:
        # The run ends before signals and workers are needed.
        train(config, None, None)  # type: ignore[arg-type]
    return str(raised.value)


def test_folder_says_what_is_trained_and_can_be_loaded(dataset: Path, tmp_path: Path) -> None:
    first = prepared(tmp_path, dataset, n_workers=3, overrides="max_iter: 77")
    assert DatasetPaths(dataset).used.is_file()
    net = read_net(first.run.paths.net)
    assert [layer.data_param.source for layer in net.layer[:2]] == [str(dataset / "train"), str(dataset / "test")]
    assert net.layer[0].transform_param.mean_file == str(mean_path(dataset))
    loaded = load_run(first.run.paths.root)
    assert loaded.solver.max_iter == 77
    assert loaded.prefix == "patches"
    assert loaded.train_net.params == first.run.train_net.params
    assert loaded.images_per_step() == 32
    assert [layer.tops for layer in loaded.train_layers()] == [{"data": (32, 3, 12, 12), "label": (32,)}]
    assert [layer.tops for layer in loaded.test_layers()[0]] == [{"data": (10, 3, 12, 12), "label": (10,)}]
    loaded.binding.close()


def test_a_host_without_the_runs_folder_loads_the_run_by_the_files_of_its_task(dataset: Path, tmp_path: Path) -> None:
    first = prepared(tmp_path, dataset, overrides="max_iter: 77")
    root = first.run.paths.root
    (root / "work").mkdir(exist_ok=True)
    settings = {"run_dir": str(root), "work": str(root / "work"), "start_state": ""}
    settings |= shipped_settings(first.run.paths, settings)
    assert sum(map(len, settings["files"].values())) < 20_000
    root.rename(tmp_path / "elsewhere")
    loaded = load_run(Path(with_folder_on_host(settings, tmp_path / "executor")["run_dir"]))
    assert loaded.solver.max_iter == 77
    assert loaded.train_net.params == first.run.train_net.params
    assert [layer.tops for layer in loaded.train_layers()] == [{"data": (32, 3, 12, 12), "label": (32,)}]
    refuse_lost_outputs((loaded.train_net,), loaded.paths.outputs, loaded.config.run_dir)
    loaded.binding.close()
    assert not root.exists()


@pytest.mark.parametrize("file_name", ["/elsewhere/o.h5", "../o.h5", "sub/o.h5"])
def test_a_host_without_the_runs_folder_refuses_files_outside_of_its_outputs(
    dataset: Path, tmp_path: Path, file_name: str
) -> None:
    train = "include { phase: TRAIN }"
    file = f'hdf5_output_param {{ file_name: "{file_name}" }}'
    layer = f'layer {{ name: "out" type: "HDF5Output" bottom: "data" bottom: "label" {train} {file} }}'
    run = prepared(tmp_path, dataset, net=NET + layer).run
    nets = (run.train_net, *run.test_nets)
    refuse_lost_outputs(nets, run.paths.outputs, run.config.run_dir)
    if file_name == "sub/o.h5":
        refuse_lost_outputs(nets, tmp_path / "copy" / "outputs", run.config.run_dir)
        return
    with pytest.raises(ConfigError, match=rf'layer "out" writes {file_name}: host \S+ does not see run_dir=.*run, and'):
        refuse_lost_outputs(nets, tmp_path / "copy" / "outputs", run.config.run_dir)


def test_replicas_multiply_the_passes_of_a_step_and_the_file_keeps_its_own(dataset: Path, tmp_path: Path) -> None:
    first = prepared(tmp_path, dataset, gpus_per_worker=3, overrides="iter_size: 2")
    assert "iter_size: 2\n" in first.run.paths.solver.read_text()
    loaded = load_run(first.run.paths.root)
    loaded.binding.close()
    for run in (first.run, loaded):
        assert run.plan.n_replicas == 3
        assert run.solver.iter_size == 6
        assert run.images_per_step() == 32 * 6


def test_the_folder_keeps_the_placement_that_the_run_began_with(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "gpus.txt").write_text("*: 0\nip*: 1\n")
    first = prepared(tmp_path, dataset, gpus_per_worker=2, placement=tmp_path / "gpus.txt")
    (tmp_path / "gpus.txt").unlink()
    loaded = load_run(first.run.paths.root)
    loaded.binding.close()
    placement = loaded.plan.placement
    assert placement is not None
    assert placement == first.run.plan.placement
    assert set(placement.device_of.values()) == {0, 1}
    assert loaded.plan.n_replicas == 1
    assert loaded.solver.iter_size == 1


def test_a_wrong_placement_leaves_no_folder(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "gpus.txt").write_text("ip9: 1\n")
    refusal = start_refusal(tmp_path, dataset, gpus_per_worker=2, placement=tmp_path / "gpus.txt")
    assert refusal.startswith(f"{tmp_path / 'gpus.txt'}:1: 'ip9' names no layer of the training net; did you mean")
    assert not (tmp_path / "run").exists()


def test_order_is_caffes_for_one_worker_and_shuffled_for_several(dataset: Path, tmp_path: Path) -> None:
    assert prepared(tmp_path / "a", dataset).orders["train"].order == "file"
    shuffled = prepared(tmp_path / "b", dataset, n_workers=2).orders["train"]
    assert (shuffled.order, shuffled.shard_samples, shuffled.piece_samples) == ("shuffled", (80, 80), 32)  # a batch
    assert prepared(tmp_path / "c", dataset, n_workers=2, order="file").orders["train"].order == "file"


def test_strategy_options_and_lock_reach_the_exchange(dataset: Path, tmp_path: Path) -> None:
    run_setup = prepared(
        tmp_path,
        dataset,
        n_workers=2,
        strategy="deepspark",
        strategy_options="period: 5 moving_rate: 0.2 decay_rate: 0.5 decay_step: 10",
        lock="striped",
    )
    settings = exchange_settings(run_setup, plan_start(run_setup.run))
    assert (settings.alpha(), settings.running_lock()) == (0.2, "striped")
    assert settings.running_strategy() == configure("deepspark", {"decay_rate": 0.5, "decay_step": 2})
    assert loop_plan(load_run(run_setup.run.paths.root), 0, 0).comm_period.value == 5


@pytest.mark.parametrize(
    ("strategy", "n_workers", "asks_ahead"),
    [
        ("easgd", 2, True),
        ("softsync", 2, True),
        ("sync", 2, False),  # the next round begins after this one
        ("easgd", 1, False),  # a snapshot has the state of its own moment, also a snapshot that a user asks for
    ],
)
def test_grants_are_requested_ahead_where_workers_go_their_own_way(
    dataset: Path, tmp_path: Path, strategy: str, n_workers: int, asks_ahead: bool
) -> None:
    run_setup = prepared(tmp_path, dataset, n_workers=n_workers, strategy=strategy)
    assert loop_plan(run_setup.run, 0, 0).asks_ahead == asks_ahead


def test_missing_seed_is_fixed_and_noted(dataset: Path, tmp_path: Path) -> None:
    run_setup = prepared(tmp_path, dataset, solver=SOLVER.replace("random_seed: 3", ""))
    assert run_setup.run.random_seed == DEFAULT_SEED
    assert any("random_seed" in note for note in run_setup.notes)
    assert load_run(run_setup.run.paths.root).random_seed == DEFAULT_SEED


def test_different_test_nets_keep_files_of_their_own(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "test.prototxt").write_text(NET.replace("batch_size: 10", "batch_size: 7"))
    solver = SOLVER.replace('net: "{net}"', f'train_net: "{{net}}" test_net: "{tmp_path}/test.prototxt"')
    prepared(tmp_path, dataset, solver=solver)
    run = load_run(tmp_path / "run")
    assert run.train_net.inputs["data"][0] == 32
    assert run.test_nets[0].inputs["data"][0] == 7


INPUT = 'layer {{ name: "{0}" type: "Input" top: "{0}" input_param {{ shape {{ dim: 8 {1} }} }} }}'


def test_input_layers_take_the_datasets_columns_in_order(dataset: Path, tmp_path: Path) -> None:
    data = INPUT.format("data", "dim: 3 dim: 14 dim: 16") + INPUT.format("label", "")
    solver = SOLVER.replace("test_iter: 3 test_interval: 20", "")
    net = data + NET[NET.index('layer { name: "conv"') :]
    run = prepare_run(training_config(tmp_path, dataset, net=net, solver=solver)).run
    layers = run.train_layers()
    images, labels = layers[0].samples.read(0, 0, 8)
    for layer, expected in zip(layers, (images, labels), strict=True):
        (top,) = layer.tops
        targets = {top: np.empty(layer.tops[top], np.float32)}
        layer.fill((images, labels), targets, (1,))
        assert targets[top].tolist() == expected.astype(np.float32).tolist()
    assert [layer.stream for layer in layers] == ["train", "train"]  # image and label of one sample
    run.binding.close()


def test_weights_are_copied_by_name_and_the_rest_is_filled(dataset: Path, tmp_path: Path) -> None:
    net = prepared(tmp_path / "a", dataset).run.train_net
    weights = tmp_path / "w.caffemodel"
    vector = np.arange(net.params.n_params, dtype=np.float32)
    write_caffemodel(weights, net, vector)
    other = NET.replace('name: "ip"', 'name: "ip_new"')
    run = prepare_run(training_config(tmp_path / "b", dataset, net=other, weights=weights)).run
    start = plan_start(run)
    views = run.train_net.params.views(start.center)
    assert views["conv[0]"].tolist() == net.params.views(vector)["conv[0]"].tolist()
    filled = run.train_net.params.views(initial_vector(run.train_net, 3))
    assert views["ip_new[0]"].tolist() == filled["ip_new[0]"].tolist()
    assert start.notes[0] == f"weights from {weights}"


@pytest.mark.parametrize("named_in", ["solver", "config"])
def test_of_several_weights_files_the_later_override_and_the_log_names_all(
    dataset: Path, tmp_path: Path, named_in: str
) -> None:
    net = prepared(tmp_path / "a", dataset).run.train_net
    files = [tmp_path / "first.caffemodel", tmp_path / "second.caffemodel", tmp_path / "conv_only.caffemodel"]
    other = prepared(tmp_path / "o", dataset, net=NET.replace('name: "ip"', 'name: "ip_new"')).run.train_net
    for file, of, value in zip(files, (net, net, other), (1, 2, 3), strict=True):
        write_caffemodel(file, of, np.full(of.params.n_params, value, np.float32))
    first, second, conv_only = files
    if named_in == "solver":  # repeated, and a list with commas
        options = {"solver": SOLVER + f' weights: "{first},{second}" weights: "{conv_only}"'}
    else:
        options = {"weights": f"{first},{second}, {conv_only}"}
    run = prepare_run(training_config(tmp_path / "b", dataset, **options)).run
    start = plan_start(run)
    views = run.train_net.params.views(start.center)
    assert set(views["conv[0]"].ravel()) == {3}
    assert set(views["ip[0]"].ravel()) == {2}
    assert [note for note in start.notes if note.startswith("weights from")] == [f"weights from {f}" for f in files]
    assert plan_start(load_run(run.paths.root)).center.tolist() == start.center.tolist()


def test_two_workers_in_one_process_learn_and_share_an_epoch(dataset: Path, tmp_path: Path) -> None:
    finished = run_in_process(training_config(tmp_path, dataset, n_workers=2, overrides="max_iter: 120 snapshot: 60"))
    assert [outcome.ending for outcome in finished.outcomes] == ["finished", "finished"]
    assert sum(outcome.steps for outcome in finished.outcomes) == 120
    assert finished.events("evaluation")[-1].data["accuracy"] > 0.6  # 30 samples of 3 classes; guessing gives a third
    assert [event.data["samples"] for event in finished.events("epoch")][:3] == [160] * 3
    assert finished.prepared.run.paths.snapshot_iterations() == [60, 120]
    blobs = read_caffemodel(finished.prepared.run.paths.snapshot("patches", 120, "caffemodel"))
    assert blobs["conv"][0].ravel().tolist() == finished.center[: blobs["conv"][0].size].tolist()


# ------------------------------------------------------------------------------------------------------------- mistakes


def test_mistakes_leave_no_folder(dataset: Path, tmp_path: Path) -> None:
    start_refusal(
        tmp_path, dataset, net=NET.replace('"InnerProduct" bottom: "pool"', '"InnerProduct" bottom: "nothing"')
    )
    start_refusal(tmp_path, tmp_path / "absent")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        ('"InnerProduct" bottom: "pool"', '"InnerProduct" bottom: "pol"', 'no layer before it makes bottom "pol"'),
        ('type: "Pooling"', 'type: "Poling"', 'no importer for layer type "Poling"'),
        ('WithLoss" bottom: "ip" bottom: "label"', 'WithLoss" bottom: "ip" bottom: "data"', "expected 32"),
    ],
)
def test_training_refuses_a_broken_net_with_the_message_of_check(
    dataset: Path, tmp_path: Path, good: str, bad: str, finding: str
) -> None:
    net = NET.replace(good, bad)
    assert net != NET
    refusal = start_refusal(tmp_path, dataset, net=net)
    checked = inspect_solver(CheckConfig(solver=tmp_path / "solver.prototxt", dataset=dataset)).errors
    line = next(number for number, text in enumerate(net.splitlines(), start=1) if bad in text)
    assert refusal == checked[0]
    assert refusal.startswith(f"train net: {tmp_path}/net.prototxt:{line}:")
    assert finding in refusal
    with pytest.raises(CaffeImportError) as raised:
        measure_net(PlanConfig(solver=tmp_path / "solver.prototxt", dataset=dataset))
    assert str(raised.value) == refusal


def test_overwritten_memory_is_noted(dataset: Path, tmp_path: Path) -> None:
    aside = (
        'layer { name: "flat" type: "Flatten" bottom: "conv" top: "flat" }\n'
        'layer { name: "over" type: "Sigmoid" bottom: "flat" top: "flat" }\n'
        'layer { name: "unread" type: "Silence" bottom: "flat" }\n'
    )
    notes = prepared(tmp_path, dataset, net=NET.replace('layer { name: "pool"', f'{aside}layer {{ name: "pool"')).notes
    line = NET.splitlines().index(next(text for text in NET.splitlines() if 'name: "pool"' in text)) + 4
    for title in ("train", "test"):
        message = (
            f'{title} net: {tmp_path}/net.prototxt:{line}:1: layer "pool" reads blob "conv", but in Caffe it finds'
        )
        assert any(note.startswith(message) for note in notes), notes


def test_missing_dataset(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert start_refusal(tmp_path, absent) == (
        f'dataset={absent}: no such folder; run "deepspark ingest" first, or give its --output'
    )


def test_dataset_without_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    assert 'run "deepspark ingest"' in start_refusal(tmp_path, tmp_path / "data")


def test_more_classes_than_outputs(dataset: Path, tmp_path: Path) -> None:
    refusal = start_refusal(tmp_path, dataset, net=NET.replace("num_output: 3", "num_output: 2"))
    assert refusal == (
        f'layer "loss": bottom "ip" has 2 scores per sample, the dataset {dataset} has 3 classes;'
        " give the net as many outputs as classes"
    )


def test_missing_weights_and_weights_of_another_net(dataset: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent.caffemodel"
    assert start_refusal(tmp_path, dataset, weights=absent) == f"weights={absent}: no such file"
    other = prepared(
        tmp_path / "o", dataset, net=NET.replace('name: "conv"', 'name: "c"').replace('name: "ip"', 'name: "i"')
    )
    weights = tmp_path / "other.caffemodel"
    net = other.run.train_net
    write_caffemodel(weights, net, np.zeros(net.params.n_params, np.float32))
    assert start_refusal(tmp_path / "b", dataset, weights=weights) == (
        f'weights={weights}: holds none of the net\'s layers; the net has "conv", "ip", the file "c", "i";'
        " is it the file of another net?"
    )


def test_net_that_reads_no_files_without_a_dataset(tmp_path: Path) -> None:
    net = (
        'layer { name: "in" type: "MemoryData" top: "data" top: "label"'
        " memory_data_param { batch_size: 2 channels: 3 height: 4 width: 4 } }"
    )
    refusal = start_refusal(
        tmp_path,
        None,
        net=net + NET[NET.index('layer { name: "conv"') :],
        solver=SOLVER.replace("test_iter: 3 test_interval: 20", ""),
    )
    assert refusal == (
        'layer "in" (MemoryData): reads no files; give an ingested dataset (option dataset) or a layer of type Data'
    )


def test_snapshot_of_another_net_in_the_folder(dataset: Path, tmp_path: Path) -> None:
    config = training_config(tmp_path, dataset, overrides="max_iter: 4 snapshot: 4 test_interval: 100")
    run_in_process(config)
    refusal = start_refusal(tmp_path, dataset, net=NET.replace("num_output: 8", "num_output: 9"))
    assert "state of a net with" in refusal
    assert "give another run_dir" in refusal


def test_options_that_do_not_go_together(dataset: Path, tmp_path: Path) -> None:
    assert 'strategy "esgd" is unknown' in start_refusal(tmp_path, dataset, strategy="esgd")


def test_splits_of_two_ingestions_are_refused_by_training_and_check(dataset: Path, tmp_path: Path) -> None:
    copied = tmp_path / "dataset"
    shutil.copytree(dataset, copied)
    manifest = read_manifest(copied / "test")
    put_manifest(copied / "test", manifest.model_copy(update={"recipe_sha256": "1" * 64}))
    expected = "its splits come from ingestions with other sources or options (recipes: train 000000000000, test 1111"
    assert expected in start_refusal(tmp_path, copied)
    config = CheckConfig(solver=training_config(tmp_path, copied).solver, dataset=copied)
    assert any(expected in error for error in inspect_solver(config).errors)


def test_a_damaged_page_is_found_before_a_worker_could_read_it(dataset: Path, tmp_path: Path) -> None:
    copied = tmp_path / "dataset"
    shutil.copytree(dataset, copied)
    data = next((copied / "train").glob("*.lmdb")) / "data.mdb"
    content = bytearray(data.read_bytes())
    content[3 * 4096 : 3 * 4096 + 64] = bytes(range(64))
    data.write_bytes(content)
    assert "SHA-256 is" in start_refusal(tmp_path, copied)
    assert not (tmp_path / "run").exists()
    assert "damaged LMDB" in start_refusal(tmp_path, copied, verify="sizes")
    own_net = NET.replace('"none"', f'"{data.parent}"').replace('"mean"', f'"{mean_path(copied)}"')
    assert f"{data.parent}: damaged LMDB" in start_refusal(tmp_path, None, net=own_net)
    config = CheckConfig(solver=training_config(tmp_path, None, net=own_net).solver)
    assert all(f"{data.parent}: damaged LMDB" in error for error in inspect_solver(config).errors)
    data.write_bytes(content[:-4096])
    assert "data.mdb is cut short" in start_refusal(tmp_path, copied, verify="sizes")
    assert not (tmp_path / "run").exists()


def test_weights_of_another_net_leave_nothing(dataset: Path, tmp_path: Path) -> None:
    other = NET.replace('name: "conv"', 'name: "other"').replace('name: "ip"', 'name: "another"')
    run = prepared(tmp_path / "other", dataset, net=other).run
    write_caffemodel(tmp_path / "other.caffemodel", run.train_net, initial_vector(run.train_net, 1))
    assert "is it the file of another net" in start_refusal(tmp_path, dataset, weights=tmp_path / "other.caffemodel")
    assert not (tmp_path / "run").exists()


def fail_after(root: Path, work: Callable[[], object], *, begins: bool = False) -> None:
    with nothing_left_on_error(root, prepared_files(root)) as began:
        work()
        (root / "half").mkdir(parents=True)
        if begins:
            began()
        raise ConfigError("no such file")


def test_a_refused_start_leaves_an_earlier_runs_files_as_they_were(dataset: Path, tmp_path: Path) -> None:
    root = prepared(tmp_path, dataset).run.paths.root
    old_files = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match="no such file"):
        fail_after(root, lambda: prepared(tmp_path, dataset, overrides="max_iter: 7"))
    assert {path.name: path.read_bytes() for path in root.iterdir()} == old_files


def test_a_run_that_began_stays(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        fail_after(tmp_path / "run", lambda: None, begins=True)
    assert (tmp_path / "run" / "half").is_dir()
