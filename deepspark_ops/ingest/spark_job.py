"""Stage ingest as a Spark application: the driver lists and commits, tasks read and write one shard each.

Run by spark-submit with the config's path, or by ``python -m deepspark_ops.ingest.spark_job CONFIG.json``.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import AccumulatorParam

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig, is_known
from deepspark_ops.config.shared_options.source_formats import TABLE_FORMATS
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.file_lock import locked_folder
from deepspark_ops.ingest.commit import (
    check_strict,
    commit_dataset,
    current_dataset,
    finish_commit,
    undone_on_failure,
)
from deepspark_ops.ingest.contact_sheet import add_contact_sheet
from deepspark_ops.ingest.files.source_folders import sources_limited
from deepspark_ops.ingest.findings import summary
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.pace import seconds_at_most
from deepspark_ops.ingest.plan import DatasetPlan, Task
from deepspark_ops.ingest.recipe import Recipe, make_recipe
from deepspark_ops.ingest.report.page import add_report, profile_before
from deepspark_ops.ingest.report.profile import resize_text
from deepspark_ops.ingest.shard_task import ShardResult
from deepspark_ops.ingest.sources.registry import find_format, with_own_splits
from deepspark_ops.ingest.versions.base import find_base
from deepspark_ops.ingest.versions.kept_versions import remove_unnamed
from deepspark_ops.processes.cluster_network import choose_listen_address
from deepspark_ops.processes.spark_context import SparkOnDemand, start_context
from deepspark_ops.processes.spark_submit import spark_conf
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.shards.manifest import DatasetManifest, SplitName
from deepspark_ops.stores.arrow_store import ARROW_SCHEMES
from deepspark_ops.stores.staging import kept_copy, staging, staging_of, use_staging
from deepspark_ops.stores.store_path import DataPath, StorePath
from deepspark_ops.stores.writing import remove_tree

_log = logging.getLogger(__name__)
_SPARK_START_S = 5.0
"""A start of Spark and its Python workers takes longer (``benchmarks/ingest_engine.py``): a task of so many seconds is
done sooner by this process alone, with however many cores Spark has."""
_WORK_PREFIX = ".work-"
_JVM_PORT = "PYSPARK_GATEWAY_PORT"

Finished = dict[tuple[SplitName, int], tuple[int, int]]
"""(split, number) of each shard that was written -> (samples, bytes)."""


class _FinishedShards(AccumulatorParam[Finished]):  # type: ignore[misc]
    """Joins the reports of tasks for the progress in the log; a task that runs twice reports the same shard."""

    def zero(self, value: Finished) -> Finished:
        return {}

    def addInPlace(self, value1: Finished, value2: Finished) -> Finished:
        value1.update(value2)
        return value1


def main(config_path: Path) -> None:
    """Ingest as the config file (JSON of IngestConfig) says.

    Raises:
        ConfigError: The config or a source is wrong.
        DataError: The data cannot be used.
    """
    run_ingest(parse_config(IngestConfig, read_config_file(config_path)))


def run_ingest(config: IngestConfig) -> dict[SplitName, DatasetManifest]:
    """Make the dataset of ``config``; return the manifest of each split.

    Nothing is written, and Spark is not started, if the dataset is there already and whole.

    Raises:
        ConfigError: An option or a source is wrong.
        DataError: The data cannot be used.
        DeepSparkError: A task died in a way that another try may cure.
    """
    with sources_limited(config):
        return _run_ingest(config)


def _run_ingest(config: IngestConfig) -> dict[SplitName, DatasetManifest]:
    started = time.monotonic()
    use_staging(staging_of(config.staging_folder, config.staging_size))
    config = with_own_splits(config)
    recipe = make_recipe(config)
    manifests = _found_current(config, recipe) if is_known(config) else None
    if manifests is not None:
        return manifests
    unread_test_source = (
        None if config.test_source else find_format(recipe.sources["train"].format).usual_test(config.source)
    )
    if unread_test_source is not None:
        _log.warning(
            "ingest: %s is not read; test_source=%s would test on it", unread_test_source.name, unread_test_source
        )
    old_profile = profile_before(config.output, config.previous)
    listen_address = choose_listen_address(config.listen_address, config.master)
    is_local = config.master.startswith("local")
    is_table = recipe.sources["train"].format in TABLE_FORMATS
    if is_table:
        config = _with_local_tables(config, is_local=is_local)
    with (
        _work_folder(config.output, is_local=is_local) as work,
        _spark(config, listen_address, work, has_python_tasks=not is_table) as spark,
    ):
        manifests = ingest_source(spark, config, recipe, work)
    for split, manifest in manifests.items():
        _log.info(
            "ingest %s: %s samples, %s classes, shards: %s, %s bytes, %s rejected",
            split,
            f"{manifest.n_samples:,}",
            manifest.n_classes,
            len(manifest.shards),
            f"{manifest.n_bytes:,}",
            f"{manifest.n_rejected:,}",
        )
        if manifest.chosen:
            counts_text = ", ".join(f"{why.replace('_', ' ')} {count:,}" for why, count in manifest.chosen.items())
            _log.info("ingest %s: records %s", split, counts_text)
        if manifest.warnings:
            _log.warning(
                "ingest %s: %s; named in %s/%s", split, summary(manifest.warnings), split, manifest.warnings_file
            )
    if resized := resize_text(config.output):
        _log.info("ingest: %s", resized)
    add_report(config.output, old_profile)
    _log.info("ingest: %s committed in %.1f s", config.output, time.monotonic() - started)
    return manifests


def _found_current(config: IngestConfig, recipe: Recipe) -> dict[SplitName, DatasetManifest] | None:
    manifests = current_dataset(config, recipe)
    if manifests is not None:
        check_strict(config, manifests)
        if not isinstance(config.output, StorePath):
            with locked_folder(config.output) as is_free:
                if is_free:  # else an ingestion with other options is at work
                    finish_commit(config.output, manifests)
        looked_at = "every object's size compared" if isinstance(config.output, StorePath) else "every byte verified"
        _log.info("ingest: %s is up to date (same source, same options, %s)", config.output, looked_at)
    return manifests


def plan_source(
    spark: SparkOnDemand, config: IngestConfig, recipe: Recipe, work: DataPath, *, is_preview: bool = False
) -> tuple[IngestConfig, Recipe, DatasetPlan[Any]]:
    """Return the plan of a dataset, with the config and the recipe that the content of a table completes.

    This process reads a few files of a table by itself if Spark does not run yet; images need no Spark. ``work`` is a
    scratch folder that all tasks see. A preview omits log lines, and stamps that only a dataset on disk needs.

    Raises:
        ConfigError: Options do not fit the source.
        DataError: The records cannot be used.
        DeepSparkError: A task died in a way that another try may cure.
    """
    if recipe.sources["train"].format not in TABLE_FORMATS:
        return config, recipe, plan_images(config, recipe, work, base=find_base(config, recipe.options))
    assert isinstance(work, Path), "a cluster writes no table into a store"
    if config.engine == "spark":
        spark.context()
    from deepspark_ops.ingest.tables.spark_job import open_tables
    from deepspark_ops.ingest.tables.table_source import plan_table_source

    return plan_table_source(config, recipe, *open_tables(spark, config), work, is_preview=is_preview)


def plan_table_on_this_host(config: IngestConfig, recipe: Recipe, work: Path) -> DatasetPlan[Any]:
    """Return the plan of a table's dataset for a report; Spark runs on this host, whatever the master is.

    Raises:
        DeepSparkError: As ``plan_source``.
    """
    use_staging(staging_of(config.staging_folder, config.staging_size))
    config = _with_local_tables(config.model_copy(update={"master": "local[*]"}), is_local=True)
    with _spark(config, choose_listen_address(config.listen_address, config.master), work) as spark:
        return plan_source(spark, config, recipe, work, is_preview=True)[2]


def ingest_source(
    spark: SparkOnDemand, config: IngestConfig, recipe: Recipe, work: DataPath
) -> dict[SplitName, DatasetManifest]:
    """Plan a dataset, run the tasks of the plan and commit the shards.

    Raises:
        DataError: A shard cannot be written.
        DeepSparkError: As ``plan_source``.
    """
    config, recipe, plan = plan_source(spark, config, recipe, work)
    if not is_known(config) and (manifests := _found_current(config, recipe)) is not None:
        return manifests
    needs_spark = _needs_spark(spark, config, plan)
    if plan.table is None:
        _report_rejected(plan)
    for split, change in plan.changes.items():
        _log.info("ingest %s: %s", split, change.text())
    with undone_on_failure(config.output):
        results = _run_tasks(spark if needs_spark else None, plan)
    manifests = commit_dataset(config, recipe, plan, results)
    add_contact_sheet(config.output)
    return manifests


def _needs_spark(spark: SparkOnDemand, config: IngestConfig, plan: DatasetPlan[Any]) -> bool:
    """Return whether tasks of Spark do the work, else this process; of images the log says which, and why."""
    if plan.table is not None:
        return spark.is_started and len(plan.tasks) > 0
    # spark-submit has started a JVM before this process: a new dataset then is a Spark application's work.
    has_jvm = spark.is_started or _JVM_PORT in os.environ
    may_stay = config.engine == "auto" and not (has_jvm and plan.base is None)
    seconds = seconds_at_most(plan, _SPARK_START_S) if may_stay else None
    if config.engine == "process" or seconds is not None:
        n_records = sum(task.n_records for task in plan.tasks)
        why = f"engine={config.engine}" + ("" if seconds is None else f": at most {seconds:.1f} s by a sample")
        _log.info("ingest: this process reads %s records, Spark is not started (%s)", f"{n_records:,}", why)
        return False
    spark.context()
    return True


def _report_rejected(plan: DatasetPlan[Any]) -> None:
    """Say what is wrong with the list itself; the images are read all the same, so that one run finds everything."""
    rejected = [item for items in plan.rejected.values() for item in items]
    if rejected:
        _log.warning(
            "ingest: %s of %s entries are no usable records, first: %s: %s; the others are read",
            f"{len(rejected):,}",
            f"{plan.n_records:,}",
            rejected[0].name,
            rejected[0].reason,
        )


@contextmanager
def _work_folder(output: DataPath, *, is_local: bool) -> Iterator[DataPath]:
    """Yield a scratch folder below the output, so that tasks on other hosts see it too; it goes at the end.

    With an output in a store it is a local one, or of a cluster in the store as well.
    """
    if isinstance(output, StorePath):
        with _stored_work_folder(output, is_local=is_local) as work:
            yield work
        return
    was_there = output.exists()
    with ExitStack() as stack:
        try:
            output.mkdir(parents=True, exist_ok=True)
            if not stack.enter_context(locked_folder(output)):
                msg = f"output={output}: another ingestion is at work on it; wait for its end, or give another output"
                raise ConfigError(msg)
            for left_over in output.glob(f"{_WORK_PREFIX}*"):  # of an ingestion that was killed
                shutil.rmtree(left_over, ignore_errors=True)
            with suppress(DataError):  # a damaged manifest: nobody knows what it names
                remove_unnamed(output)
            work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=output))
        except OSError as error:
            msg = f"output={output}: {error.strerror or error}; give a folder that can be written"
            raise ConfigError(msg) from error
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
            for folder in () if was_there else (*output.glob("*/"), output):
                with suppress(OSError):  # not empty: there is a dataset, or a list of rejected records
                    folder.rmdir()


@contextmanager
def _stored_work_folder(output: StorePath, *, is_local: bool) -> Iterator[DataPath]:
    if is_local:
        with staging().scratch() as folder:
            yield folder
        return
    for left_over in output.glob(f"{_WORK_PREFIX}*"):  # of an ingestion that was killed
        remove_tree(left_over)
    work = output / f"{_WORK_PREFIX}{secrets.token_hex(4)}"
    try:
        yield work
    finally:
        remove_tree(work)


def _with_local_tables(config: IngestConfig, *, is_local: bool) -> IngestConfig:
    """Return the config with local copies of tables in an object store: Spark itself reads no ``s3://``.

    Raises:
        ConfigError: A cluster would have to read such a table, or to write a table's shards into a store.
    """
    changed: dict[str, Path] = {}
    for name in ("source", "test_source", "validation_source"):
        path: DataPath | None = getattr(config, name)
        if not isinstance(path, StorePath) or path.scheme not in ARROW_SCHEMES:
            continue
        if not is_local:
            msg = (
                f"{name}={path}: Spark on a cluster reads a table in S3 by its own connector; give s3a://"
                f"{path.key} (docs/guides/stores.md), or master=local[*]"
            )
            raise ConfigError(msg)
        changed[name] = kept_copy(path)
    if isinstance(config.output, StorePath) and not is_local:
        msg = (
            f"output={config.output}: a cluster needs a folder that driver and executors share to make a table's"
            " shards; give one and copy it, or master=local[*]"
        )
        raise ConfigError(msg)
    return config.model_copy(update=changed)


@contextmanager
def _spark(
    config: IngestConfig, listen_address: str, work: DataPath, *, has_python_tasks: bool = False
) -> Iterator[SparkOnDemand]:
    """Yield Spark, which is started when it is first needed and stopped at the end."""
    # The variable and not spark.local.dir, which Spark answers with a warning in every log.
    if not isinstance(work, StorePath):
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(work / "spark"))
    spark = SparkOnDemand(
        lambda: start_context(
            config.master,
            {**spark_conf(), "spark.app.name": "deepspark ingest"},
            listen_address=listen_address,
            insecure_network=config.insecure_network,
            has_python_tasks=has_python_tasks,
        ),
        is_allowed=config.engine != "process",
    )
    try:
        yield spark
    finally:
        spark.stop()


def _run_tasks(spark: SparkOnDemand | None, plan: DatasetPlan[Task]) -> list[ShardResult]:
    """Run every task once, over the cluster or in this process, and log shards as they are finished."""
    run_one = plan.run
    progress = _Progress(Counter(task.split for task in plan.tasks), "images" if plan.table is None else "rows")
    if spark is None:
        results: list[ShardResult] = []
        for task in plan.tasks:
            results.append(run_one(task))
            progress.report(_finished(results))
        return results
    finished = spark.context().accumulator({}, _FinishedShards())
    copies = staging()

    def run(task: Task) -> ShardResult:
        use_staging(copies)
        result = run_one(task)
        finished.add(_finished([result]))
        return result

    failed = "the shards were not written"
    results = spark.map(run, plan.tasks, failed=failed, on_wait=lambda: progress.report(finished.value))
    progress.report(_finished(results))
    return results


def _finished(results: Sequence[ShardResult]) -> Finished:
    return {
        (result.split, result.task_number): (result.n_samples, result.n_bytes) for result in results if result.n_samples
    }


class _Progress:
    """Logs one line per finished shard: how far its split is and how fast the job runs as a whole."""

    def __init__(self, n_shards: Mapping[SplitName, int], unit: str) -> None:
        self._unit = unit
        self._n_shards = n_shards
        self._shards: Counter[SplitName] = Counter()
        self._samples: Counter[SplitName] = Counter()
        self._n_bytes = 0
        self._reported: set[tuple[SplitName, int]] = set()
        self._started = time.monotonic()

    def report(self, finished: Finished) -> None:
        for shard, (n_samples, n_bytes) in list(finished.items()):  # a copy: Spark's thread adds shards
            if shard in self._reported:
                continue
            self._reported.add(shard)
            split = shard[0]
            self._shards[split] += 1
            self._samples[split] += n_samples
            self._n_bytes += n_bytes
            seconds = time.monotonic() - self._started
            _log.info(
                "ingest %s: shard %d/%d written, %s samples, %s %s/s, %.1f MB/s",
                split,
                self._shards[split],
                self._n_shards[split],
                f"{self._samples[split]:,}",
                f"{self._samples.total() / seconds:,.0f}",
                self._unit,
                self._n_bytes / seconds / 1e6,
            )


if __name__ == "__main__":
    sys.exit(stage_main(main))
