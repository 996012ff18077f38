"""Stage evaluate as a Spark application: each task scores a part of the samples, the driver puts the sums together.

The figures have the bits of a run in a single process: each sample is in the same batch, and the order of sums does not
matter. Run by spark-submit with the config's path, or by ``python -m deepspark_ops.evaluate.spark_job CONFIG.json``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from caffe_import.extras import require
from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.found_weights import find_weights
from deepspark_ops.evaluate.parts.part_scores import PartConfig, Scored, part_bounds, score_part
from deepspark_ops.evaluate.scoring import Answer
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.trained_net import TrainedNet
from deepspark_ops.processes.cluster_network import choose_listen_address
from deepspark_ops.processes.spark_context import require_visible_on_hosts, start_context
from deepspark_ops.processes.spark_failure import error_of_task, spark_failure
from deepspark_ops.processes.spark_submit import spark_conf
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.processes.visible_paths import named_paths
from deepspark_ops.run_paths import RunPaths

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Evaluate as the config file says and log the result."""
    config = parse_config(EvaluateConfig, json.loads(read_config_file(config_path)))
    find_weights(RunPaths(config.run_dir), config.weights)  # refused before TensorFlow and Java are started
    require("tensorflow", part="deepspark evaluate")
    from deepspark_ops.evaluate.stage import run_evaluate

    with open_context(config) as context:
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

    Args:
        context: Its tasks see the run and its data under the driver's paths.
        config: What is scored.
        trained: The net, as the driver has opened it.
        tasks: Its results; each task of Spark finds them by itself.
        answer: Unused here: the driver computes nothing.
        rows: Folder for files with a row for each sample, which tasks see, too; None for none.

    Raises:
        ConfigError: A host of the cluster does not see the files.
        DataError: What a task found wrong with the samples or the net.
        DeepSparkError: A task died in a way that another try may cure.
    """
    # The same weights for all, though training may go on and leave another snapshot.
    pinned = with_paths_from(config, Path.cwd()).model_copy(update={"weights": trained.weights.path.absolute()})
    threads = int(context.getConf().get("spark.task.cpus", "1") or 1)
    dataset = config.dataset or trained.config.dataset
    paths = {"run_dir": pinned.run_dir, "weights": pinned.weights, "dataset": dataset, "output": rows}
    part = PartConfig(pinned.model_dump_json(), threads, rows, named_paths(paths))
    bounds = part_bounds(
        trained.samples.n_samples,
        batch_size=trained.samples.batch_size,
        n_at_once=context.defaultParallelism,
        most=config.task_samples,
    )
    _log.info(
        "%s samples are scored by Spark with master=%s in %s tasks",
        f"{trained.samples.n_samples:,}", context.master, f"{len(bounds):,}",
    )  # fmt: skip
    try:
        require_visible_on_hosts(context, part.paths)
        scored: Scored = (
            context.parallelize(bounds, len(bounds))
            .map(lambda bound: score_part(part, *bound))
            .treeReduce(Scored.merged)
        )
    except (PySparkException, Py4JError) as error:
        failure = spark_failure(error, master=context.master, task="task")
        if (refusal := error_of_task(failure)) is not None:
            raise refusal from error
        msg = f"nothing was written: {failure}"
        raise DeepSparkError(msg) from error
    return scored


@contextmanager
def open_context(config: EvaluateConfig) -> Iterator[SparkContext]:
    """Start Spark's driver in this process, by ``config``, until the block ends."""
    master = config.master or "local[*]"
    with tempfile.TemporaryDirectory(prefix="deepspark-") as scratch:
        # The variable and not spark.local.dir, which Spark answers with a warning in every log.
        os.environ.setdefault("SPARK_LOCAL_DIRS", scratch)
        context = start_context(
            master,
            {**spark_conf(), "spark.app.name": f"deepspark evaluate {config.run_dir.name}"},
            listen_address=choose_listen_address(config.listen_address, master),
            insecure_network=config.insecure_network,
        )
        try:
            yield context
        finally:
            context.stop()


if __name__ == "__main__":
    sys.exit(stage_main(main))
