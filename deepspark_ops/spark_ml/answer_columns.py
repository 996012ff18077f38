"""The parameters and columns that transformer and model share: a bundle's answers beside the rows that they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasPredictionCol, HasProbabilityCol
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, NumericType, StringType

from deepspark_ops.errors import ConfigError
from deepspark_ops.predict.spark_udf import predict_udf

_ANSWER = "deepspark_answer"


class HasBundle(HasPredictionCol, HasProbabilityCol):
    """Parameters of what answers by a bundle.

    Attributes:
        bundle: Folder that driver and workers see under this path.
        outputCol: Column of the whole answer, a struct with ``predicted``, ``predicted_name``, ``probability``,
            ``scores``, ``error``; empty for none.
        batchSize: Samples of a forward pass.
        threads: TensorFlow's threads in a worker; ``spark.task.cpus`` of the session.
        predictionCol: Column of the class as Spark ML has it, double; null where a row cannot be used; empty for none.
        probabilityCol: Column of the classes' probabilities, a vector; likewise.
    """

    bundle: Param[str] = Param(
        Params._dummy(), "bundle", "folder of the model, as deepspark export writes it", TypeConverters.toString
    )
    outputCol: Param[str] = Param(
        Params._dummy(), "outputCol", "column of the whole answer, a struct; empty for none", TypeConverters.toString
    )
    batchSize: Param[int] = Param(Params._dummy(), "batchSize", "samples of a forward pass", TypeConverters.toInt)
    threads: Param[int] = Param(Params._dummy(), "threads", "TensorFlow's threads in a worker", TypeConverters.toInt)

    def getBundle(self) -> str:
        """Return the folder of the model."""
        return str(self.getOrDefault(self.bundle))

    def getOutputCol(self) -> str:
        """Return the column of the whole answer; empty for none."""
        return str(self.getOrDefault(self.outputCol))

    def answered(self, dataset: DataFrame, column: str) -> DataFrame:
        """Return the rows with the answers beside them.

        Args:
            dataset: Any rows.
            column: What is answered: a vector, an array of numbers, a number, images (binary), their paths (string).

        Raises:
            ConfigError: No such column, or of another type.
            DataError: There is no bundle, or a file of it is missing or changed.
        """
        given = sample_column(dataset, column)
        udf = predict_udf(
            Path(self.getBundle()),
            batch_size=self.getOrDefault(self.batchSize),
            threads=self.getOrDefault(self.threads),
        )
        found = dataset.withColumn(_ANSWER, udf(given))
        answer = F.col(_ANSWER)
        columns: dict[str, Column] = {
            self.getOutputCol(): answer,
            self.getOrDefault(self.predictionCol): answer["predicted"].cast("double"),
            self.getOrDefault(self.probabilityCol): F.when(
                answer["scores"].isNotNull(), array_to_vector(answer["scores"])
            ),
        }
        return found.withColumns({name: made for name, made in columns.items() if name}).drop(_ANSWER)


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
