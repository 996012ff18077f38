"""Stages predict and features as a Spark application: each task answers a part of the inputs.

spark-submit runs the module with the config's path, or by ``python -m deepspark_ops.predict.spark_job CONFIG.json``.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from caffe_import.extras import require
from deepspark_ops.config.base import with_paths_from
from deepspark_ops.config.commands.predict import BundleInputConfig, catalog_table, parse_answers_config
from deepspark_ops.driver_files.task_files import TaskFiles, files_for_tasks
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import read_manifest
from deepspark_ops.predict.columns import output_schema
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.inputs.named_images import images_folder
from deepspark_ops.predict.inputs.table_columns import choose_columns, with_chosen_features
from deepspark_ops.predict.part_answers import PartConfig, answer_numbers, answer_rows, write_part
from deepspark_ops.predict.samples import BundleForm, chunk_size, form_of_config
from deepspark_ops.predict.stream import AnswerCount, Summary
from deepspark_ops.processes.batch_passes import part_ranges
from deepspark_ops.processes.spark_context import arrow_schema, open_context
from deepspark_ops.processes.spark_failure import job_error
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.shards.manifest import MANIFEST_NAME
from deepspark_ops.stores.staging import staging_of
from deepspark_ops.stores.store_path import StorePath

_log = logging.getLogger(__name__)
_SUCCESS = "_SUCCESS"

_NO_ROWS = "nothing string"
"""Columns of tasks that write their rows themselves."""

Counts = dict[int, AnswerCount]
Answered = Callable[[Iterable[Any]], Iterator[Any]]
"""The answers of a task, Arrow batches, to the task's rows."""


class _Counts(AccumulatorParam[Counts]):  # type: ignore[misc]
    """Keeps the last count of each part: a task may run twice."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        value1.update(value2)
        return value1


def main(config_path: Path) -> None:
    """Answer as the config file says and log the result; a config with blobs is a config of features."""
    require("tensorflow", "pyarrow", part="deepspark predict")
    run_on_spark(parse_answers_config(read_config_file(config_path))).log_to(_log)


def run_on_spark(config: BundleInputConfig) -> Summary:
    """Answer every input in a new Spark application; for result and errors see ``answer_on``."""
    with open_context(
        config.master,
        f"deepspark predict {config.bundle.name}",
        listen_address=config.listen_address,
        insecure_network=config.insecure_network,
    ) as context:
        return answer_on(SparkSession(context), config)


def answer_on(session: SparkSession, config: BundleInputConfig) -> Summary:
    """Answer every input in tasks of Spark, and write a table of the catalog or a folder of Parquet files.

    Raises:
        ConfigError: An option, the bundle, an input or the output is wrong.
        DataError: No input can be used, or an input of a strict config.
        DeepSparkError: A task died in a way that another try may cure.
    """
    manifest = read_manifest(config.bundle)
    config = with_paths_from(config, Path.cwd())
    config = config.model_copy(update={"batch_size": chunk_size(manifest, config.batch_size)})
    form = form_of_config(config, manifest, config.bundle)
    check_output(config)
    counts = session.sparkContext.accumulator({}, _Counts())
    task_cpus = int(session.sparkContext.getConf().get("spark.task.cpus", "1") or 1)
    where = f"by Spark with master={session.sparkContext.master}"
    _log.info("net %s of %s on %s, %s", manifest.net, config.bundle.name, config.input, where)
    for remark in form.remarks:
        _log.warning("%s", remark)
    began = time.monotonic()
    with (
        _plain_errors(session, config),
        _temporary_output(config) as temporary,
        _files_for_tasks(session.sparkContext.master, config, temporary) as files,
    ):
        part = PartConfig(config.model_dump_json(), config.threads or task_cpus, files)
        table = catalog_table(config.input)
        if table is not None:
            frame, answer = _table_answers(session, config, form, table, part, counts)
        else:
            frame, answer = _number_answers(
                session, config, _n_records(config, form), manifest.unit_batch, part, counts
            )
        if temporary is None:
            _save_table(session, config, frame.mapInArrow(answer, from_arrow_schema(output_schema(config, manifest))))
        else:
            frame.mapInArrow(_written(part, answer), _NO_ROWS).collect()
        total = AnswerCount()
        for _, count in sorted(counts.value.items()):
            total.merge(count)
        summary = total.summary(config.output, form, time.monotonic() - began)
        summary.require_answer()
        if temporary is not None:
            _replace_output(config, temporary)
    return summary


def check_output(config: BundleInputConfig) -> None:
    """Refuse an output that Spark cannot write, or that another program has written.

    Raises:
        ConfigError: The output is in a store, a file, or a folder of another program.
    """
    folder = config.output
    if isinstance(folder, StorePath):
        msg = f"output={folder}: with Spark the output is a folder of the driver's disks; give one, or no master"
        raise ConfigError(msg)
    if catalog_table(folder) is None and folder.exists() and not (folder / _SUCCESS).is_file():
        kind = (
            "a folder that Spark did not write" if folder.is_dir() else "a file; Spark writes a folder of Parquet files"
        )
        msg = f"output={folder}: is there already and is {kind}; give another path"
        raise ConfigError(msg)


def _n_records(config: BundleInputConfig, form: BundleForm) -> int:
    """Return the number of inputs; if the format does not have the number, read and count all inputs."""
    inputs = open_inputs(config, form)
    for remark in inputs.remarks:
        _log.warning("%s", remark)
    n_records = inputs.n_records if inputs.n_records is not None else sum(1 for _ in inputs.read())
    if not n_records:
        msg = f"no input: the {inputs.description} is empty"
        raise DataError(msg)
    return n_records


def _number_answers(
    session: SparkSession,
    config: BundleInputConfig,
    n_records: int,
    unit: int,
    part: PartConfig,
    counts: Any,
) -> tuple[DataFrame, Answered]:
    """Return numbers of parts, and the answers of inputs that every task opens; a task reads a range of the inputs."""
    slots = session.sparkContext.defaultParallelism
    ranges = part_ranges(n_records, n_slots=slots, most=config.task_records, unit=unit)

    def answered(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                start, stop = ranges[number]
                count = AnswerCount()
                yield from answer_numbers(part, start, stop, count)
                counts.add({number: count})

    return session.range(0, len(ranges), 1, len(ranges)), answered


def _table_answers(
    session: SparkSession,
    config: BundleInputConfig,
    form: BundleForm,
    name: str,
    part: PartConfig,
    counts: Any,
) -> tuple[DataFrame, Answered]:
    """Return the rows of a table, and the answers of rows, in Spark's partitions of the table."""
    frame = session.table(name)
    columns = choose_columns(arrow_schema(frame.schema), config, form)
    for remark in columns.remarks:
        _log.warning("%s", remark)
    if columns.id is None and columns.image is None:
        msg = f"input={config.input}: rows of a Spark table have no numbers; name what tells them apart with id_column"
        raise ConfigError(msg)
    part = replace(part, text=with_chosen_features(config, columns).model_dump_json())

    def answered(batches: Iterable[Any]) -> Iterator[Any]:
        count = AnswerCount()
        yield from answer_rows(part, batches, count)
        counts.add({_partition(): count})

    # A row may be a photograph of some megabytes.
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(config.batch_size))
    return frame.select(*columns.names), answered


def _written(part: PartConfig, answer: Answered) -> Answered:
    """Return a function that writes the answers of a task into the output, and has no rows."""

    def written(batches: Iterable[Any]) -> Iterator[Any]:
        write_part(part, _partition(), answer(batches))
        return iter(())

    return written


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    return int(context.partitionId())


@contextmanager
def _temporary_output(config: BundleInputConfig) -> Iterator[Path | None]:
    """Yield an empty folder beside the output; None for a table of the catalog."""
    if catalog_table(config.output) is not None:
        yield None
        return
    folder = config.output
    assert isinstance(folder, Path), "refused at the beginning"
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files_for_tasks(master: str, config: BundleInputConfig, output: Path | None) -> AbstractContextManager[TaskFiles]:
    """Serve bundle and inputs to tasks on hosts that do not see them; ``config`` has absolute paths."""
    is_table = catalog_table(config.input) is not None
    return files_for_tasks(
        master,
        listen_address=config.listen_address,
        listen_port=config.listen_port,
        staging=staging_of(config.staging_folder, config.staging_size),
        read=(config.bundle, config.root_folder, None if is_table else config.input),
        # A split of a dataset has its manifest's name in the folder above.
        folders=() if is_table else (images_folder(config), config.input.parent / MANIFEST_NAME),
        output=output,
    )


def _replace_output(config: BundleInputConfig, temporary: Path) -> None:
    folder = config.output
    assert isinstance(folder, Path), "refused at the beginning"
    (temporary / _SUCCESS).touch()
    temporary.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)


def _save_table(session: SparkSession, config: BundleInputConfig, answered: DataFrame) -> None:
    table = catalog_table(config.output)
    assert table is not None, "the output is a table or a folder"
    # Without a catalog's name the table is in the session's catalog.
    if session.conf.get("spark.sql.catalogImplementation") == "in-memory" and table.count(".") < 2:
        _log.warning(
            "output=%s: this Spark's catalog is in its memory, so that no other session sees the table; its files"
            " are below %s. A metastore is set in spark-defaults.conf: spark.sql.catalogImplementation hive",
            config.output, session.conf.get("spark.sql.warehouse.dir"),
        )  # fmt: skip
    answered.write.mode(config.table_mode).saveAsTable(table)


@contextmanager
def _plain_errors(session: SparkSession, config: BundleInputConfig) -> Iterator[None]:
    """Raise errors of Spark with a message of one sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if isinstance(error, PySparkException) and error.getCondition() in _MISTAKES:
            msg = f"input={config.input}, output={config.output}: {str(error).splitlines()[0]}"
            raise ConfigError(msg) from error
        raise job_error(error, master=session.sparkContext.master, failed="nothing was written") from error


_MISTAKES = frozenset(
    {"TABLE_OR_VIEW_NOT_FOUND", "TABLE_OR_VIEW_ALREADY_EXISTS", "SCHEMA_NOT_FOUND", "PARSE_SYNTAX_ERROR"}
)


if __name__ == "__main__":
    sys.exit(stage_main(main))
