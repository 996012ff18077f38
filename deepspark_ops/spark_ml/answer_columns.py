"""Parameters and columns of transformer and model: a bundle's answers, added to the rows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasInputCols, HasPredictionCol, HasProbabilityCol
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, NumericType, StringType

from deepspark_ops.config.commands.predict import RawImageConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import BundleManifest, OutputBlob, find_bundle, parse_manifest
from deepspark_ops.predict.spark_udf import predict_udf

_ANSWER = "deepspark_answer"


class HasBundle(HasPredictionCol, HasProbabilityCol, HasInputCols):
    """Parameters of stages that answer rows by a bundle.

    Attributes:
        bundle: Folder on the driver's disk.
        inputCols: One column per input of the bundle, in the order of the manifest.
        outputCol: Column of the whole answer, a struct with the columns of ``deepspark predict``; empty for no column.
        batchSize: Samples of a forward pass; default as in ``deepspark predict``.
        threads: TensorFlow's threads in a worker; ``spark.task.cpus`` of the session.
        topK: Most probable classes in the answer's ``top_classes``.
        imageOptions: Preprocessing of images, instead of the training images' preprocessing: ``resize_height``,
            ``resize_width``, ``max_pixel``, as in ``deepspark predict``.
        predictionCol: Column of the main result in Spark ML's form; null for an unusable row; empty for no column.
            The class (double), the labels with probability above 0.5 (array of doubles), a single number (double),
            else the numbers in Caffe's order (vector).
        probabilityCol: Column of the probabilities of classes or labels, a vector; null for an unusable row; empty for
            no column. Bundles of other tasks have no probabilities.
    """

    bundle: Param[str] = Param(
        Params._dummy(), "bundle", "folder of the model, as deepspark export writes it", TypeConverters.toString
    )
    outputCol: Param[str] = Param(
        Params._dummy(), "outputCol", "column of the whole answer, a struct; empty for none", TypeConverters.toString
    )
    batchSize: Param[int] = Param(Params._dummy(), "batchSize", "samples of a forward pass", TypeConverters.toInt)
    threads: Param[int] = Param(Params._dummy(), "threads", "TensorFlow's threads in a worker", TypeConverters.toInt)
    topK: Param[int] = Param(Params._dummy(), "topK", "most probable classes of an answer", TypeConverters.toInt)
    imageOptions: Param[dict[str, int]] = Param(
        Params._dummy(), "imageOptions", "preprocessing of images, instead of the training images' preprocessing"
    )

    def getBundle(self) -> str:
        """Return the folder of the model."""
        return str(self.getOrDefault(self.bundle))

    def getOutputCol(self) -> str:
        """Return the column of the whole answer; empty for none."""
        return str(self.getOrDefault(self.outputCol))

    def answered(self, dataset: DataFrame, column: Param[str]) -> DataFrame:
        """Return the rows with the answers in further columns.

        Args:
            dataset: Any rows.
            column: Parameter with the name of the input column if ``inputCols`` is not set: a vector, an array of
                numbers, a number, images (binary), their paths (string).

        Raises:
            ConfigError: A column is missing or has another type, the number of columns differs from the number of
                inputs, or ``probabilityCol`` is set for a bundle without probabilities.
            DataError: The bundle is missing, or a file of the bundle is missing or changed.
        """
        folder = find_bundle(Path(self.getBundle()))
        manifest = parse_manifest(folder)
        sample_columns = [sample_column(dataset, name) for name in self._columns(manifest, column)]
        main = manifest.results()[0]
        has_classes = main.task in _WITH_CLASSES
        if not has_classes and self.isSet(self.probabilityCol) and self.getProbabilityCol():
            msg = (
                f"probabilityCol={self.getProbabilityCol()}: the bundle {folder} gives a {main.task.replace('_', ' ')},"
                " no probabilities; leave it out"
            )
            raise ConfigError(msg)
        udf = predict_udf(
            folder,
            batch_size=self.getOrDefault(self.batchSize) if self.isDefined(self.batchSize) else None,
            threads=self.getOrDefault(self.threads),
            top_k=self.getOrDefault(self.topK),
            **_image_options(self.getOrDefault(self.imageOptions)),
        )
        answered_rows = dataset.withColumn(_ANSWER, udf(*sample_columns))
        answer = F.col(_ANSWER)
        columns = {self.getOutputCol(): answer, self.getPredictionCol(): _prediction(answer, main)}
        if has_classes:
            columns[self.getProbabilityCol()] = _vector(answer[main.name])
        return answered_rows.withColumns({name: value for name, value in columns.items() if name}).drop(_ANSWER)

    def _columns(self, manifest: BundleManifest, column: Param[str]) -> list[str]:
        """Return the columns of the bundle's inputs.

        Raises:
            ConfigError: The number of columns differs from the number of inputs.
        """
        several = self.isSet(self.inputCols)
        columns = list(self.getInputCols()) if several else [str(self.getOrDefault(column))]
        if len(columns) != len(manifest.inputs):
            named = ", ".join(input_contract.name for input_contract in manifest.inputs)
            option_text = f"{self.inputCols.name if several else column.name}={','.join(columns)}"
            takes = f"the bundle {self.getBundle()} takes the inputs {named}"
            msg = f"{option_text}: {takes}; name a column for each with inputCols, in this order"
            raise ConfigError(msg)
        return columns


def _image_options(options: Mapping[str, int]) -> Mapping[str, int]:
    allowed = tuple(RawImageConfig.model_fields)
    if unknown := sorted(set(options) - set(allowed)):
        msg = f"imageOptions={dict(options)}: no option {', '.join(unknown)}; allowed: {', '.join(allowed)}"
        raise ConfigError(msg)
    return options


_WITH_CLASSES: Final = ("classification", "multi_label")


def _prediction(answer: Column, main: OutputBlob) -> Column:
    """Return the main result in the form of Spark ML's evaluators."""
    if main.task == "classification":
        return answer["predicted"].cast("double")
    if main.task == "multi_label":
        return answer["predicted"].cast("array<double>")
    numbers = answer[main.name]
    return numbers.cast("double") if prod(main.shape[1:]) == 1 else _vector(numbers)


def _vector(numbers: Column) -> Column:
    return F.when(numbers.isNotNull(), array_to_vector(numbers))


def sample_column(dataset: DataFrame, column: str) -> Column:
    """Return a column in the form of ``predict_udf``: a vector or a number as an array.

    Raises:
        ConfigError: The column is missing or has another type.
    """
    if column not in dataset.columns:
        msg = f'no column "{column}"; there are {", ".join(dataset.columns)}'
        raise ConfigError(msg)
    kind = dataset.schema[column].dataType
    if isinstance(kind, VectorUDT):
        return vector_to_array(F.col(column), "float32")
    if isinstance(kind, NumericType):
        return F.array(F.col(column).cast("float"))
    if not isinstance(kind, (BinaryType, StringType)) and not _holds_numbers(kind):
        msg = (
            f'column "{column}" is {kind.simpleString()}; allowed: a vector, an array of numbers, a number, images'
            " (binary), paths of images (string)"
        )
        raise ConfigError(msg)
    return F.col(column)


def _holds_numbers(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType)


def set_params(stage: Any, params: dict[str, Any]) -> Any:
    """Set the parameters except None, and return the stage."""
    return stage._set(**{name: value for name, value in params.items() if value is not None})
