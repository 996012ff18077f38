"""The parameters and columns that transformer and model share: a bundle's answers beside the rows that they are of."""

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
from deepspark_ops.export.manifest import BundleManifest, OutputBlob, parse_manifest
from deepspark_ops.predict.spark_udf import predict_udf

_ANSWER = "deepspark_answer"


class HasBundle(HasPredictionCol, HasProbabilityCol, HasInputCols):
    """Parameters of what answers by a bundle.

    Attributes:
        bundle: Folder that driver and workers see under this path.
        inputCols: For a bundle with several inputs a column for each, in the order of its manifest.
        outputCol: Column of the whole answer, a struct with the columns of ``deepspark predict``; empty for none.
        batchSize: Samples of a forward pass; default as of ``deepspark predict``.
        threads: TensorFlow's threads in a worker; ``spark.task.cpus`` of the session.
        topK: Most probable classes in the answer's ``top_classes``.
        imageOptions: What is to be done to images in place of what was done to the training images: ``resize_height``,
            ``resize_width``, ``max_pixel``, as of ``deepspark predict``.
        predictionCol: Column of the main result as Spark ML has it; null where a row cannot be used; empty for none.
            The class (double), the labels that are more likely than not (array of doubles), a single number (double),
            else the numbers in Caffe's order (vector).
        probabilityCol: Column of the probabilities of classes or labels, a vector; likewise. Other bundles have none.
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
        Params._dummy(), "imageOptions", "what is done to images otherwise than to the training images"
    )

    def getBundle(self) -> str:
        """Return the folder of the model."""
        return str(self.getOrDefault(self.bundle))

    def getOutputCol(self) -> str:
        """Return the column of the whole answer; empty for none."""
        return str(self.getOrDefault(self.outputCol))

    def answered(self, dataset: DataFrame, column: Param[str]) -> DataFrame:
        """Return the rows with the answers beside them.

        Args:
            dataset: Any rows.
            column: Parameter that names what is answered where ``inputCols`` does not: a vector, an array of numbers, a
                number, images (binary), their paths (string).

        Raises:
            ConfigError: No such column, one of another type, another number of columns than the bundle has inputs, or a
                ``probabilityCol`` for a bundle without probabilities.
            DataError: There is no bundle, or a file of it is missing or changed.
        """
        folder = Path(self.getBundle())
        manifest = parse_manifest(folder)
        given = [sample_column(dataset, name) for name in self._columns(manifest, column)]
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
        found = dataset.withColumn(_ANSWER, udf(*given))
        answer = F.col(_ANSWER)
        columns = {self.getOutputCol(): answer, self.getPredictionCol(): _prediction(answer, main)}
        if has_classes:
            columns[self.getProbabilityCol()] = _vector(answer[main.name])
        return found.withColumns({name: made for name, made in columns.items() if name}).drop(_ANSWER)

    def _columns(self, manifest: BundleManifest, column: Param[str]) -> list[str]:
        """Return the columns of the bundle's inputs.

        Raises:
            ConfigError: Too few or too many are named.
        """
        several = self.isSet(self.inputCols)
        found = list(self.getInputCols()) if several else [str(self.getOrDefault(column))]
        if len(found) != len(manifest.inputs):
            named = ", ".join(one.name for one in manifest.inputs)
            given = f"{self.inputCols.name if several else column.name}={','.join(found)}"
            takes = f"the bundle {self.getBundle()} takes the inputs {named}"
            msg = f"{given}: {takes}; name a column for each with inputCols, in this order"
            raise ConfigError(msg)
        return found


def _image_options(options: Mapping[str, int]) -> Mapping[str, int]:
    allowed = tuple(RawImageConfig.model_fields)
    if unknown := sorted(set(options) - set(allowed)):
        msg = f"imageOptions={dict(options)}: no option {', '.join(unknown)}; allowed: {', '.join(allowed)}"
        raise ConfigError(msg)
    return options


_WITH_CLASSES: Final = ("classification", "multi_label")


def _prediction(answer: Column, main: OutputBlob) -> Column:
    """Return the main result as Spark ML's evaluators read it."""
    if main.task == "classification":
        return answer["predicted"].cast("double")
    if main.task == "multi_label":
        return answer["predicted"].cast("array<double>")
    found = answer[main.name]
    return found.cast("double") if prod(main.shape[1:]) == 1 else _vector(found)


def _vector(numbers: Column) -> Column:
    return F.when(numbers.isNotNull(), array_to_vector(numbers))


def sample_column(dataset: DataFrame, column: str) -> Column:
    """Return a column as ``predict_udf`` takes it: a vector or a number as an array.

    Raises:
        ConfigError: No such column, or of another type.
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


def set_given(stage: Any, given: dict[str, Any]) -> Any:
    """Set the parameters that were given, None left out, and return the stage."""
    return stage._set(**{name: value for name, value in given.items() if value is not None})
