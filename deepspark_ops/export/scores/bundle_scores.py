"""Scores an exported bundle on a run's data, sample by sample; the result has the files of an evaluation.

The bundle's SavedModel is scored, with its net, mean and crop, on samples as stored. So a model in production can be
compared with a model of another net or another preprocessing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.prototxt import read_net
from caffe_import.net.batch_size import batch_size_of, net_in_batches
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.evaluate import ScoreBundleConfig
from deepspark_ops.config.shared_options.batch_size import DEFAULT_BATCH_SIZE
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.per_sample.each_batch import each_batch, rows_file, rows_folder, write_rows
from deepspark_ops.evaluate.per_sample.properties import sample_groups
from deepspark_ops.evaluate.per_sample.row_reader import ROWS_NAME
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, write_samples
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.evaluate.scoring import Answer, measure_speed, report_of, score_samples, scored_samples
from deepspark_ops.evaluate.tasks.choice import ChosenTask, choose_task, task_wish
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, ScoredOn, Speed
from deepspark_ops.evaluate.tf_predict import compile_answers, compile_targets, scoring_device
from deepspark_ops.evaluate.trained_net import TrainedNet, load_params, open_trained_net
from deepspark_ops.export.deploy_net import inputs_of_sides
from deepspark_ops.export.input_steps import table_of_input
from deepspark_ops.export.manifest import (
    DEPLOY_NAME,
    SAVED_MODEL_NAME,
    WEIGHTS_NAME,
    BundleManifest,
    read_manifest,
)
from deepspark_ops.export.served_input import Serve, as_input, stored_parts
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.run_paths import write_text_whole


def score_bundle(config: ScoreBundleConfig) -> MetricsReport:
    """Score the bundle on the run's samples; write metrics.json, samples.h5 and, on demand, samples.parquet.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct; nothing is written then.
    """
    manifest = read_manifest(config.bundle)
    with ExitStack() as stack:
        rows = stack.enter_context(rows_folder(config.output)) if config.production_rows else None
        trained = stack.enter_context(
            open_trained_net(
                config.run_dir, weights=None, dataset=config.dataset, split=config.split, batch_size=config.batch_size
            )
        )
        deploy, batch_size = _deploy_net(config)
        bundle_task = choose_task(deploy)
        speed = _speed(config, deploy, bundle_task, batch_size, trained.solver)
        task = choose_task(trained.net, task_wish(config.task, config.output_blob, config.target_blob))
        main = manifest.results()[0]
        if main.task != task.task:
            msg = (
                f"{config.bundle}: the bundle gives a {main.task.replace('_', ' ')}, the run's net a "
                f"{task.task.replace('_', ' ')}: they cannot be compared"
            )
            raise DataError(msg)
        if task.task == "classification":
            task = replace(task, n_classes=max(task.n_classes, manifest.output.n_classes))
        answer = _answer(config.bundle, manifest, task, trained, class_axis=bundle_task.axis_in_sample + 1)
        path = rows_file(rows, 0) if rows else None
        with each_batch((), trained.samples, [task], path, has_scores=False) as (each, _):
            sums, digest = score_samples(answer, trained.samples, [task], worst=0, each=each if rows else None)
        scored = ScoredOn(
            net=manifest.net,
            run=manifest.origin.run,
            iteration=manifest.origin.iteration,
            weights=WEIGHTS_NAME,
            weights_digest=manifest.files[WEIGHTS_NAME],
            dataset=trained.data_name,
            dataset_digest=digest.text(),
            split=config.split,
            score_blob=task.output,
            split_rule=trained.samples.split_rule,
        )
        names = trained.samples.answer_names(task.task, tuple(manifest.output.labels))
        metrics = report_of(sums, scored, names, speed)
        groups = sample_groups(trained.samples)
        write_samples(config.output / SAMPLES_NAME, scored_samples(metrics, sums[0], digest, groups))
        if config.production_rows:
            write_rows(config.output, rows, scored.weights_digest)
        else:
            (config.output / ROWS_NAME).unlink(missing_ok=True)  # of other scores
        write_text_whole(config.output / METRICS_NAME, metrics.to_json())
    return metrics


def _answer(
    bundle: Path, manifest: BundleManifest, task: ChosenTask, trained: TrainedNet, *, class_axis: int
) -> Answer:
    """Return the bundle's answers to the run's samples; ``class_axis`` is of the bundle's main output (N, ...)."""
    serve = load_saved_model(bundle / SAVED_MODEL_NAME)
    targets = compile_targets(trained.net, [task], n_threads=len(os.sched_getaffinity(0)))
    takes_raw = any(table_of_input(contract, bundle) is not None for contract in manifest.inputs)

    def answer(batch: Batch) -> dict[str, npt.NDArray[Any]]:
        scores = {blob: _served(serve, manifest, {**raw(batch), **parts}) for blob, parts in sides(batch).items()}
        if task.task == "classification":
            # Classes that the bundle does not know get probability 0.
            scores = {
                blob: np.pad(class_scores, ((0, 0), (0, task.n_classes - class_scores.shape[1])))
                for blob, class_scores in scores.items()
            }
        elif task.task == "segmentation":
            scores = {blob: np.moveaxis(class_scores, class_axis, 1) for blob, class_scores in scores.items()}
        target_values = {name: values[: batch.count] for name, values in targets(batch.feeds).items()}
        return {**scores, **target_values}

    def raw(batch: Batch) -> dict[str, npt.NDArray[Any]]:
        """Return the stored batch; a table's features in their original units if the bundle takes these."""
        table = trained.samples.table
        if table is None or not takes_raw:
            return dict(batch.stored)
        shape = (table.n_features,)
        return {
            name: table.restore(values) if values.shape[1:] == shape else values
            for name, values in batch.stored.items()
        }

    def sides(batch: Batch) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Return output's blob -> arguments of the bundle for that branch; no arguments except for a pair."""
        if len(task.outputs) == 1:
            return {task.output: {}}
        (contract,) = manifest.inputs
        fed = {top for layer in trained.samples.layers for top in layer.tops}
        inputs = inputs_of_sides(trained.net, task, fed)
        parts = stored_parts(batch.stored, inputs)
        return {side: {contract.name: parts[entry.blob]} for side, entry in zip(task.outputs, inputs, strict=True)}

    return Answer(answer)


def _served(serve: Serve, manifest: BundleManifest, stored: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Return the bundle's main result for stored samples; inputs are matched by name, else by position."""
    # The name of a single image input is "images"; its blob in the net is the first stored blob.
    first = next(iter(stored.values()))
    if first.dtype == np.object_:  # images of several sizes
        singles = ({blob: values[i][np.newaxis] for blob, values in stored.items()} for i in range(len(first)))
        return np.concatenate([_served(serve, manifest, single) for single in singles])
    arguments = {contract.name: as_input(stored.get(contract.name, first), contract) for contract in manifest.inputs}
    return serve(arguments)[manifest.output.scores].astype(np.float64)


def _deploy_net(config: ScoreBundleConfig) -> tuple[NetSpec, int]:
    """Return the bundle's net and its batch size."""
    message = read_net(config.bundle / DEPLOY_NAME)
    inputs = [layer for layer in message.layer if layer.type == "Input"]
    build = partial(build_net_spec, message, phase="TEST")
    net = net_in_batches(inputs, build, requested=config.batch_size, default=DEFAULT_BATCH_SIZE)
    return net, batch_size_of(inputs[0])


def _speed(config: ScoreBundleConfig, net: NetSpec, task: ChosenTask, batch_size: int, solver: SolverSpec) -> Speed:
    """Time the bundle's net as stage evaluate times a run's: in batches, without preprocessing."""
    ready = scoring_device(config.devices, solver, n_threads=len(os.sched_getaffinity(0)))
    predict = compile_answers(
        net,
        load_params(net, config.bundle / WEIGHTS_NAME),
        [task],
        n_threads=ready.n_threads,
        device=next(iter(ready.names), ""),
    )
    generator = np.random.default_rng(0)
    feeds = {name: generator.random(shape, dtype=np.float32) for name, shape in net.inputs.items()}
    predict(feeds)
    return measure_speed(lambda: predict(feeds), batch_size=batch_size, device=ready.description)
