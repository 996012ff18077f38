"""A small dataset and a run trained on it, made in seconds without Spark: what evaluation and export start from."""

import numpy as np

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.datum import encode_datum
from caffe_import.files.mean_file import write_mean
from caffe_import.net.initial_vector import initial_vector
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import append_event, make_event
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SourceRecord,
    sha256_of_file,
)
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.state_file import RunState, write_run_state
from tests.reference.dataset_files import put_manifest

CLASS_NAMES = ("red <left>", "green", "blue & right")
SHAPE = (3, 14, 16)

NET = """
name: "patches"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 12 mirror: true scale: 0.0078125 mean_file: "mean" }
  data_param { source: "none" batch_size: 32 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 12 mirror: true scale: 0.0078125 mean_file: "mean" }
  data_param { source: "none" batch_size: 10 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "{net}" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 40 snapshot: 40 snapshot_prefix: "patches"
display: 5 random_seed: 3 test_iter: 3 test_interval: 20
"""


def make_samples(n, *, seed):
    """Noise with one channel, the label's, a little brighter; BGR, so label 0 (red) is channel 2."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    images = rng.integers(0, 190, (n, *SHAPE))
    images[np.arange(n), 2 - labels] += 12
    return images.astype(np.uint8), labels


def write_split(root, split, images, labels, n_shards=2):
    """Write a split as LMDB shards, two so that reading crosses a border."""
    folder = DatasetPaths(root).split(split)
    shards = []
    for number, rows in enumerate(np.array_split(np.arange(len(images)), n_shards)):
        path = folder / f"{split}-{number:05d}.lmdb"
        write_lmdb_shard(
            path, [(sample_key(row, "x"), encode_datum(images[row], int(labels[row]))) for row in rows.tolist()]
        )
        data = path / "data.mdb"
        shards.append(
            ShardRecord(file=path.name, sha256=sha256_of_file(data), n_samples=len(rows), n_bytes=data.stat().st_size)
        )
    mean = DatasetPaths(root).split("train") / "mean.binaryproto"
    if split == "train":
        write_mean(mean, images.mean(axis=0, dtype=np.float64).astype(np.float32))
    put_manifest(
        folder,
        DatasetManifest(
            split=split,
            shard_format="lmdb",
            encoded=False,
            source=SourceRecord(path="made", format="image_list", sha256="0" * 64),
            recipe_sha256="0" * 64,
            sample_shape=images.shape[1:],
            n_samples=len(images),
            n_classes=3,
            class_names=CLASS_NAMES,
            label_histogram=tuple(np.bincount(labels, minlength=3).tolist()),
            mean_values=(0.0,) * images.shape[1],
            mean_file=FileRecord(
                file=mean.name if split == "train" else f"../train/{mean.name}", sha256=sha256_of_file(mean)
            ),
            shards=tuple(shards),
            n_rejected=0,
            n_bytes=sum(shard.n_bytes for shard in shards),
        ),
    )


def make_dataset(root, *, n_train=160, n_test=53, n_shards=2):
    """Write both splits, the training set in a number of shards; return the samples by split."""
    samples = {"train": make_samples(n_train, seed=1), "test": make_samples(n_test, seed=2)}
    for split, (images, labels) in samples.items():
        write_split(root, split, images, labels, n_shards if split == "train" else 2)
    return samples


def make_run(folder, dataset=None, *, net=NET, n_steps=40):
    """Write solver, net and a run folder, train ``n_steps`` in this process, and leave a snapshot as training does."""
    folder.mkdir(parents=True, exist_ok=True)
    net_path, solver_path = folder / "net.prototxt", folder / "solver.prototxt"
    net_path.write_text(net)
    solver_path.write_text(SOLVER.format(net=net_path))
    return train_here(solver_path, folder / "run", dataset, n_steps=n_steps)


def train_here(solver_path, run_dir, dataset=None, *, n_steps):
    """Train ``n_steps`` of a solver in this process, and leave a run with a snapshot as training does."""
    from caffe_import.tf_graph.train_step import compile_training  # tests of a dataset alone need no TensorFlow

    config = TrainConfig(solver=solver_path, dataset=dataset, run_dir=run_dir, n_workers=1)
    run = prepare_run(config).run
    function = compile_training(run.train_net, run.solver, n_threads=1)
    state = function.initial_state(initial_vector(run.train_net, 3))
    layer = run.train_layers()[0]
    for step in range(n_steps):
        columns = layer.samples.read_wrapped(step * layer.batch_size, layer.batch_size)
        feeds = {top: np.empty((1, *shape), np.float32) for top, shape in layer.tops.items()}
        layer.fill(columns, {top: values[0] for top, values in feeds.items()}, (3, step))
        state, outputs = function.run(state, step=step, n_steps=1, rate_scale=1.0, seed=3, worker=0, feeds=feeds)
        if step % 5 == 0:
            loss, rate = float(outputs.losses[0]), float(outputs.lr[0])
            append_event(run.paths.events, make_event("loss", clock=step, worker=0, loss=loss, learning_rate=rate))
    run.binding.close()
    paths = RunPaths(config.run_dir)
    prefix = run.solver.snapshot_prefix.rpartition("/")[2]
    write_caffemodel(paths.snapshot(prefix, n_steps, "caffemodel"), run.train_net, np.array(state.params_view()))
    n_params = run.train_net.params.n_params
    write_run_state(
        paths.snapshot(prefix, n_steps, "state.h5"),
        RunState(clock=n_steps, origin=0, n_params=n_params, random_seed=3),
        {},
    )
    return paths
