"""Stage evaluate as a Spark application: each task scores a part of the samples, the driver puts the sums together.

The figures have the bits of a run in a single process: each sample is in the same batch, and the order of sums does not
matter. Run by spark-submit with the config's path, or by ``python -m deepspark_ops.evaluate.spark_job CONFIG.json``.
"""

from __future__ import annotations

import logging
import math
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from caffe_import.extras import require
from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.driver_files.task_files import files_for_tasks
from deepspark_ops.evaluate.found_weights import find_weights
from deepspark_ops.evaluate.part_scores import PartConfig, Scored, score_part
from deepspark_ops.evaluate.scoring import Answer
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.trained_net import TrainedNet
from deepspark_ops.processes.batch_passes import part_ranges
from deepspark_ops.processes.spark_context import open_context
from deepspark_ops.processes.spark_failure import job_error
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.stores.staging import staging_of
from deepspark_ops.train.setup.folder_guard import prepared_files
from deepspark_ops.train.setup.run_dataset import root_of

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Evaluate as the config file says and log the result."""
    config = parse_config(EvaluateConfig, read_config_file(config_path))
    find_weights(RunPaths(config.run_dir), config.weights)  # refused before TensorFlow and Java are started
    require("tensorflow", part="deepspark evaluate")
    from deepspark_ops.evaluate.stage import run_evaluate

    with context_of(config) as context:
        evaluation = run_evaluate(config, partial(score_on, context))
    _log.info("report: %s", evaluation.report_path)


def score_on(
    context: SparkContext,
    config: EvaluateConfig,
    trained: TrainedNet,
    tasks: Sequence[ChosenTask],
    answer: Answer,
    rows: Path | None,
) -> Scored:
    """Score every sample in tasks of Spark; a ``stage.ScoreAll`` once the context is bound.

    Each task opens the net by itself; ``answer`` is unused, the driver computes nothing. Tasks on hosts without the
    driver's files read them from the driver.

    Raises:
        ConfigError: The driver's address cannot be used.
        DataError: What a task found wrong with the samples or the net.
        DeepSparkError: A task died in a way that another try may cure.
    """
    unit = trained.samples.batch_size
    most = math.ceil(config.task_samples / unit) * unit
    bounds = part_ranges(trained.samples.n_samples, n_slots=context.defaultParallelism, most=most, unit=unit)
    _log.info(
        "%s samples are scored by Spark with master=%s in %s tasks",
        f"{trained.samples.n_samples:,}", context.master, f"{len(bounds):,}",
    )  # fmt: skip
    try:
        with _part_config(context, config, trained, rows) as part:
            scored: Scored = (
                context.parallelize(bounds, len(bounds))
                .map(lambda bound: score_part(part, *bound))
                .treeReduce(Scored.merged)
            )
    except (PySparkException, Py4JError) as error:
        raise job_error(error, master=context.master, failed="nothing was written") from error
    return scored


@contextmanager
def _part_config(
    context: SparkContext, config: EvaluateConfig, trained: TrainedNet, rows: Path | None
) -> Iterator[PartConfig]:
    """Yield the options of tasks, and serve the driver's files during the block."""
    # The same weights for all, though training may go on and leave another snapshot.
    weights = trained.weights.path.absolute()
    dataset = config.dataset or trained.config.dataset
    dataset = None if dataset is None else dataset.absolute()
    pinned = with_paths_from(config, Path.cwd()).model_copy(update={"weights": weights, "dataset": dataset})
    root, threads = pinned.run_dir, int(context.getConf().get("spark.task.cpus", "1") or 1)
    with files_for_tasks(
        context.master,
        listen_address=config.listen_address,
        listen_port=config.listen_port,
        staging=staging_of(trained.config.staging_folder, trained.config.staging_size),
        read=(weights, dataset),
        folders=() if dataset is None else (root_of(dataset),),
        output=rows,
    ) as files:
        run_files = {} if files.address is None else prepared_files(root)
        contents = tuple((str(path.relative_to(root)), content) for path, content in run_files.items())
        yield PartConfig(pinned.model_dump_json(), threads, files, contents, f"deepspark-run-{secrets.token_hex(8)}")


def context_of(config: EvaluateConfig) -> AbstractContextManager[SparkContext]:
    """Start Spark's driver in this process, by ``config``, until the block ends."""
    return open_context(
        config.master,
        f"deepspark evaluate {config.run_dir.name}",
        listen_address=config.listen_address,
        insecure_network=config.insecure_network,
    )


if __name__ == "__main__":
    sys.exit(stage_main(main))
