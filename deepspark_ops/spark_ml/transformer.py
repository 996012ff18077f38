"""``DeepSparkTransformer``: answers of a bundle as a stage of a Spark ML pipeline."""

from __future__ import annotations

from typing import Any

from pyspark import keyword_only
from pyspark.ml import Transformer
from pyspark.ml.param.shared import HasInputCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from deepspark_ops.spark_ml.answer_columns import HasBundle, set_params


class DeepSparkTransformer(
    Transformer, HasInputCol, HasBundle, DefaultParamsReadable["DeepSparkTransformer"], DefaultParamsWritable
):
    """Answers each row by a bundle; see ``HasBundle`` for the parameters.

    An unusable row, such as a damaged image, has null in every column except the answer's ``error``. A saved
    transformer holds the bundle's path and not the bundle.

    Example:
        ``DeepSparkTransformer(bundle="runs/mine/bundle", inputCol="content").transform(files)``
    """

    @keyword_only
    def __init__(
        self,
        *,
        bundle: str | None = None,
        inputCol: str | None = None,
        inputCols: list[str] | None = None,
        outputCol: str | None = None,
        predictionCol: str | None = None,
        probabilityCol: str | None = None,
        batchSize: int | None = None,
        threads: int | None = None,
        topK: int | None = None,
        imageOptions: dict[str, int] | None = None,
    ) -> None:
        """Set parameters; by default the stage adds only the struct ``answer``."""
        super().__init__()
        self._setDefault(
            outputCol="answer",
            predictionCol="",
            probabilityCol="",
            threads=1,
            topK=5,
            imageOptions={},
        )
        set_params(self, self._input_kwargs)

    @keyword_only
    def setParams(self, **params: Any) -> DeepSparkTransformer:
        """Set parameters by name."""
        set_params(self, self._input_kwargs)
        return self

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return self.answered(dataset, self.inputCol)
