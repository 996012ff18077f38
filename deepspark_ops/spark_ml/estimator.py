"""``DeepSparkEstimator``: trains a Caffe net on a DataFrame, with the stages of the command line."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from caffe_import.solver.loaded_solver import LoadedSolver, load_solver
from deepspark_ops.config.base import StageConfig, parse_config
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.spark_ml.answer_columns import sample_column, set_params
from deepspark_ops.spark_ml.model import DeepSparkModel, local_folder
from deepspark_ops.train.data.data_binding import READS_FILES

_log = logging.getLogger(__name__)
_SAMPLE, _LABEL = "sample", "label"


@dataclass(frozen=True)
class FitPlan:
    """Plan of a fit, checked before anything is written.

    Attributes:
        folder: Folder of this fit: ``dataset/``, ``run/`` and, during ingestion, ``table/``.
        ingest: Options of the ingestion.
        train: Options of the training.
        export: Options of the export.
    """

    folder: Path
    ingest: IngestConfig
    train: TrainConfig
    export: ExportConfig


class DeepSparkEstimator(
    Estimator,
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    DefaultParamsReadable["DeepSparkEstimator"],
    DefaultParamsWritable,
):
    """Trains a Caffe net on rows, and returns a ``DeepSparkModel``.

    ``fit`` writes the rows as shards, trains and exports. Each step is a separate process with its own Spark
    application on the session's master, as ``deepspark ingest``, ``train`` and ``export``: on a cluster leave cores for
    the steps.

    Attributes:
        solver: Caffe solver whose nets have a layer ``Data`` (images) or ``HDF5Data`` (numbers) with the tops for
            sample and label.
        runsDir: Folder that driver and workers see; each fit creates a folder in it for dataset and run.
        testFraction: Share of the rows for the solver's test nets.
        trainOptions: Further options of ``deepspark train``, by the names of ``TrainConfig``: ``{"n_workers": 4}``.
        ingestOptions: Further options of ``deepspark ingest``: ``{"resize_height": 32, "resize_width": 32}`` for
            images. Numbers are unchanged, unless ``{"standardize": True}``. Labels that only an EuclideanLoss reads are
            values of a regression; otherwise whole numbers from 0 are classes.
        exportOptions: Further options of ``deepspark export``.
    """

    solver: Param[str] = Param(Params._dummy(), "solver", "Caffe solver", TypeConverters.toString)
    runsDir: Param[str] = Param(
        Params._dummy(), "runsDir", "folder in which each fit makes a folder", TypeConverters.toString
    )
    testFraction: Param[float] = Param(
        Params._dummy(), "testFraction", "share of the rows for the test nets", TypeConverters.toFloat
    )
    trainOptions: Param[dict[str, Any]] = Param(Params._dummy(), "trainOptions", "options of deepspark train")
    ingestOptions: Param[dict[str, Any]] = Param(Params._dummy(), "ingestOptions", "options of deepspark ingest")
    exportOptions: Param[dict[str, Any]] = Param(Params._dummy(), "exportOptions", "options of deepspark export")

    @keyword_only
    def __init__(
        self,
        *,
        solver: str | None = None,
        runsDir: str | None = None,
        featuresCol: str | None = None,
        labelCol: str | None = None,
        predictionCol: str | None = None,
        probabilityCol: str | None = None,
        testFraction: float | None = None,
        trainOptions: dict[str, Any] | None = None,
        ingestOptions: dict[str, Any] | None = None,
        exportOptions: dict[str, Any] | None = None,
    ) -> None:
        """Set what is given."""
        super().__init__()
        self._setDefault(
            probabilityCol="probability",
            testFraction=0.2,
            trainOptions={},
            ingestOptions={},
            exportOptions={"formats": "caffe,saved_model"},
        )
        set_params(self, self._input_kwargs)

    @keyword_only
    def setParams(self, **params: Any) -> DeepSparkEstimator:
        """Set parameters by name."""
        set_params(self, self._input_kwargs)
        return self

    def plan(self, kind: DataType, master: str) -> FitPlan:
        """Return the plan of a fit.

        Args:
            kind: Type of the column of features.
            master: Spark master of the stages.

        Raises:
            ConfigError: A parameter is missing or an option is wrong.
            CaffeImportError: The solver or one of its nets cannot be read.
        """
        for param in (self.solver, self.runsDir):
            if not self.isDefined(param):
                msg = f"DeepSparkEstimator: {param.name} is not set"
                raise ConfigError(msg)
        name = f"fit-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"
        folder = local_folder(self.getOrDefault(self.runsDir)) / name
        is_image = isinstance(kind, (BinaryType, StringType))
        how = {"image_column": _SAMPLE} if is_image else {"feature_columns": _SAMPLE, "standardize": False}
        ingest = {
            "source": folder / "table",
            "source_format": "parquet",
            "output": folder / "dataset",
            "label_column": _LABEL,
            "test_fraction": self.getOrDefault(self.testFraction),
            "master": master,
            **how,
        }
        train = {
            "solver": Path(self.getOrDefault(self.solver)).absolute(),
            "dataset": folder / "dataset",
            "run_dir": folder / "run",
            "master": master,
        }
        to_train = parse_config(TrainConfig, {**train, **self.getOrDefault(self.trainOptions)})
        if _predicts_a_value(load_solver(to_train.solver, to_train.overrides)):
            ingest["label_kind"] = "value"
        return FitPlan(
            folder,
            parse_config(IngestConfig, {**ingest, **self.getOrDefault(self.ingestOptions)}),
            to_train,
            parse_config(ExportConfig, {"run_dir": folder / "run", **self.getOrDefault(self.exportOptions)}),
        )

    def _fit(self, dataset: DataFrame) -> DeepSparkModel:
        sample = sample_column(dataset, self.getFeaturesCol())
        if self.getLabelCol() not in dataset.columns:
            msg = f'no column "{self.getLabelCol()}"; there are {", ".join(dataset.columns)}; name it with labelCol'
            raise ConfigError(msg)
        rows = dataset.select(sample.alias(_SAMPLE), F.col(self.getLabelCol()).alias(_LABEL))
        plan = self.plan(rows.schema[_SAMPLE].dataType, dataset.sparkSession.sparkContext.master)
        table = plan.folder / "table"
        _log.info("fit: the rows go to %s", table)
        rows.write.parquet(f"file://{table}")
        try:
            _run("deepspark_ops.ingest.spark_job", plan.ingest)
        finally:
            shutil.rmtree(table, ignore_errors=True)
        _run("deepspark_ops.train.driver.spark_job", plan.train)
        _run("deepspark_ops.export", plan.export)
        return DeepSparkModel(
            bundle=str(plan.export.output or RunPaths(plan.train.run_dir).bundle),
            featuresCol=self.getFeaturesCol(),
            predictionCol=self.getPredictionCol(),
            # By default the column exists only if the net has probabilities.
            probabilityCol=self.getProbabilityCol() if self.isSet(self.probabilityCol) else None,
        )


def _predicts_a_value(solver: LoadedSolver) -> bool:
    """Whether the net is trained to give the label as a number, also where all labels of a table are whole numbers."""
    net = solver.train_net
    labels = {layer.top[1] for layer in net.layer if layer.type in READS_FILES and len(layer.top) > 1}
    readers = {layer.type for layer in net.layer if labels & set(layer.bottom)}
    return readers == {"EuclideanLoss"}


def _run(module: str, config: StageConfig) -> None:
    """Run a stage to its end; this module's log gets the stage's lines."""
    run_job(module, config, on_line=_log.log)
