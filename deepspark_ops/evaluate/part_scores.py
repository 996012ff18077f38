"""Scores of a part of the samples, in this process; the net stays open for the next part. No pyspark in here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from caffe_import.errors import CaffeImportError
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.driver_files.task_files import TaskFiles
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.per_sample.each_batch import each_batch, rows_file
from deepspark_ops.evaluate.per_sample.slices import SliceSums
from deepspark_ops.evaluate.samples import SampleDigest, Samples
from deepspark_ops.evaluate.scoring import Answer, score_samples
from deepspark_ops.evaluate.tasks.choice import ChosenTask, choose_tasks, task_wish
from deepspark_ops.evaluate.tasks.task_sum import TaskSum
from deepspark_ops.evaluate.trained_net import TrainedNet, open_run
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.host_files.on_host import hidden_sources
from deepspark_ops.train.worker.run_copy import copy_run


@dataclass(frozen=True)
class Scored:
    """Scores of some samples.

    Attributes:
        sums: Of each result of the net, the main one first.
        digest: Of the samples.
        slices: Of each result, likewise.
    """

    sums: tuple[TaskSum, ...]
    digest: SampleDigest
    slices: tuple[SliceSums, ...]

    def merged(self, other: Scored) -> Scored:
        """Return these scores together with the scores of other samples; changes this object."""
        for mine, other_sum in zip(self.sums, other.sums, strict=True):
            mine.merge(other_sum)
        self.digest.merge(other.digest)
        for slices, other_slices in zip(self.slices, other.slices, strict=True):
            slices.merge(other_slices)
        return self


@dataclass(frozen=True)
class PartConfig:
    """Options of a part. Travels to the process of the part.

    Attributes:
        text: The config, JSON, its paths absolute, its weights and dataset named.
        threads: TensorFlow's in a task.
        files: The driver's files; their output takes files with a row for each sample.
        run_files: Content of the run's small files; empty where the process sees the run's folder.
        copy_name: Name of the copy of the run's folder, of this evaluation alone.
    """

    text: str
    threads: int
    files: TaskFiles
    run_files: tuple[tuple[str, bytes], ...] = ()
    copy_name: str = ""


def score_part(part: PartConfig, start: int, stop: int) -> Scored:
    """Score samples from ``start`` to before ``stop``.

    Raises:
        DeepSparkError, CaffeImportError: As of stage evaluate.
    """
    part.files.use()  # the process may have had a task of another job
    config, trained, tasks, answer = _opened(part)
    return score_range(config, trained.samples, tasks, answer, part.files.output_on_host(), start, stop)


def score_range(
    config: EvaluateConfig,
    samples: Samples,
    tasks: Sequence[ChosenTask],
    answer: Answer,
    rows: DataPath | None,
    start: int = 0,
    stop: int | None = None,
) -> Scored:
    """Score samples from ``start`` to before ``stop`` by an open net, and write the rows' file in folder ``rows``."""
    path = None if rows is None else rows_file(rows, start)
    with each_batch(config.slice_columns, samples, tasks, path, has_scores=config.scores) as (each, slices):
        scores = score_samples(answer, samples, tasks, worst=config.worst, start=start, stop=stop, each=each)
    return Scored(*scores, slices)


def config_on_host(part: PartConfig) -> EvaluateConfig:
    """Return the config of a part with paths for this host; the run's small files become a copy.

    Raises:
        ConfigError, DataError: A file cannot be copied.
    """
    config = parse_config(EvaluateConfig, json.loads(part.text))
    assert config.weights is not None, "the driver names the weights"
    run_dir = config.run_dir
    if part.run_files:
        run_dir = copy_run(run_dir, dict(part.run_files), Path.cwd() / part.copy_name)
    dataset = None if config.dataset is None else part.files.on_host(config.dataset)
    return config.model_copy(
        update={"run_dir": run_dir, "weights": part.files.copy(config.weights), "dataset": dataset}
    )


@cache
def _opened(part: PartConfig) -> tuple[EvaluateConfig, TrainedNet, Sequence[ChosenTask], Answer]:
    """Compile the net in this process for all parts; the net's files stay open until the process ends."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from deepspark_ops.evaluate.tf_predict import open_answers  # TensorFlow

    config = config_on_host(part)
    try:
        trained = ExitStack().enter_context(open_run(config))
    except (CaffeImportError, DataError) as error:
        if config.dataset is not None or part.files.address is None:
            raise
        raise hidden_sources(error) from error
    tasks = choose_tasks(trained.net, task_wish(config.task, config.output_blob, config.target_blob))
    ready = open_answers(trained, tasks, config, n_threads=part.threads)
    return config, trained, tasks, ready.answer
