"""Reading order and log line of a run whose dataset in a store is larger than the room for copies."""

import re

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.stores.store_path import StorePath, data_path
from deepspark_ops.train.setup.run_setup import load_run, prepare_run
from deepspark_ops.train.setup.staged_reading import fetched_text
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images

NET = """name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "x" batch_size: 4 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "x" batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 20 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 50 test_iter: 2 test_interval: 10'


@pytest.fixture
def dataset(store, tmp_path) -> StorePath:
    (store / "b").mkdir()
    store_folder = data_path("s3://b/set")
    source = write_images(tmp_path / "d", 50)
    ingest(IngestConfig(source=source, output=store_folder, test_fraction=0.1, samples_per_shard=4), tmp_path / "work")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return store_folder


def prepared(dataset: StorePath, tmp_path, shards_of_room: float, **fields: object):
    """Return a run with room for a number of the largest training shards beside the test set."""
    train, test = (read_manifest(DatasetPaths(dataset).split(split)) for split in ("train", "test"))
    room = int(shards_of_room * max(shard.n_bytes for shard in train.shards)) + test.n_bytes
    values = {"solver": tmp_path / "solver.prototxt", "dataset": dataset, "run_dir": tmp_path / "run", "n_workers": 2}
    copies = {"staging_folder": tmp_path / "copies", "staging_size": room}
    run_setup = prepare_run(TrainConfig(**{**values, **copies, **fields}))
    run_setup.run.binding.close()
    return run_setup, train


def test_the_cost_of_little_room_is_told_and_few_shards_are_mixed(dataset, tmp_path):
    run_setup, train = prepared(dataset, tmp_path, 7.2)
    order = run_setup.orders["train"]
    assert (order.order, order.mixed_shards) == ("shuffled", 3)
    (note,) = [text for text in run_setup.notes if "staging_size" in text]
    epochs = 50 * 4 / train.n_samples
    assert f"the training set in s3://b/set has {train.n_bytes / 2**10:.1f} KiB in {len(train.shards)} shards" in note
    assert f"{epochs * train.n_bytes / 2**10:.1f} KiB in the {epochs:.3g} epochs of this run" in note
    assert "mixes the samples of 3 shards at a time" in note
    assert "workers on one host" not in note
    (enough,) = re.findall("staging_size=([0-9]+MiB)", note)
    roomy_setup, _ = prepared(dataset, tmp_path, 7.2, staging_size=enough)
    assert roomy_setup.orders["train"].mixed_shards == 0
    assert not [text for text in roomy_setup.notes if "staging_size" in text]
    n_shards = len(train.shards) + len(read_manifest(DatasetPaths(dataset).split("test")).shards)
    run = load_run(tmp_path / "run")
    message_start = (
        f"fetched from s3://b/set: 3.0 MiB in {3 * n_shards} copies of shards, each of {n_shards} shards 3 times"
    )
    assert fetched_text(run, 3 * n_shards, 3 * 2**20).startswith(message_start)


@pytest.mark.parametrize(("master", "mixed_shards"), [("local[2]", 0), ("yarn", 3)])
def test_hosts_of_a_cluster_may_read_copies_of_the_drivers_dataset(dataset, tmp_path, master, mixed_shards):
    local, source = tmp_path / "set", tmp_path / "d" / "list.txt"
    ingest(IngestConfig(source=source, output=local, test_fraction=0.1, samples_per_shard=4), tmp_path / "work2")
    run_setup, _ = prepared(local, tmp_path, 7.2, master=master)
    assert run_setup.orders["train"].mixed_shards == mixed_shards
    assert len([text for text in run_setup.notes if "each host that reads copies" in text]) == (mixed_shards > 0)
    roomy_setup, _ = prepared(local, tmp_path, 7.2, master=master, staging_size="1GiB")
    assert roomy_setup.orders["train"].mixed_shards == 0


def test_two_workers_need_more_than_a_shard_each_and_file_order_has_no_groups(dataset, tmp_path):
    run_setup, _ = prepared(dataset, tmp_path, 1.5)
    assert run_setup.orders["train"].mixed_shards == 1
    assert any("2 workers on one host may need" in text for text in run_setup.notes)
    run_setup, _ = prepared(dataset, tmp_path, 7.2, order="file")
    assert run_setup.orders["train"].mixed_shards == 0
    assert any("about once per epoch" in text and "mixes" not in text for text in run_setup.notes)
