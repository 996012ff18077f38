"""Stage evaluate inside Spark, in one process with one JVM.

    python in_one_spark.py RUN BROKEN FOLDER

Evaluates RUN into FOLDER, then with the diverged weights BROKEN, and writes the error to refused.txt.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.spark_job import context_of, score_on
from deepspark_ops.evaluate.stage import run_evaluate


def main(run: Path, broken: Path, folder: Path) -> None:
    # One worker's process computes all tasks: each process would load TensorFlow and compile the net.
    options = {"batch_size": 10, "slices": "class,shard", "task_samples": 20, "master": "local[1]"}
    config = EvaluateConfig(run_dir=run, output=folder, **options)
    with context_of(config) as context:
        run_evaluate(config, partial(score_on, context))
        try:
            changes = {"weights": broken, "output": folder / "broken"}
            run_evaluate(config.model_copy(update=changes), partial(score_on, context))
        except DataError as error:
            (folder / "refused.txt").write_text(f"{error}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
