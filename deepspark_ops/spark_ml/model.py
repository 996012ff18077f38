"""``DeepSparkModel``: a trained net as a Spark ML model. A saved model includes its bundle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark import keyword_only
from pyspark.ml import Model
from pyspark.ml.param.shared import HasFeaturesCol
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql import DataFrame

from deepspark_ops.errors import ConfigError
from deepspark_ops.spark_ml.answer_columns import HasBundle, set_params

_BUNDLE = "bundle"


class DeepSparkModel(Model, HasFeaturesCol, HasBundle, MLReadable["DeepSparkModel"], MLWritable):
    """Answers each row by the bundle of a training; see ``HasBundle`` for the parameters.

    ``save`` takes a folder that driver and workers see as files, and copies the bundle into the folder. By default the
    main result is in ``prediction``, and the probabilities of classes or labels are in ``probability``, as in Spark
    ML's models, so that Spark ML's evaluators work.
    """

    @keyword_only
    def __init__(
        self,
        *,
        bundle: str | None = None,
        featuresCol: str | None = None,
        inputCols: list[str] | None = None,
        outputCol: str | None = None,
        predictionCol: str | None = None,
        probabilityCol: str | None = None,
        batchSize: int | None = None,
        threads: int | None = None,
        topK: int | None = None,
        imageOptions: dict[str, int] | None = None,
    ) -> None:
        """Set what is given."""
        super().__init__()
        self._setDefault(outputCol="", probabilityCol="probability", threads=1, topK=5, imageOptions={})
        set_params(self, self._input_kwargs)

    @keyword_only
    def setParams(self, **params: Any) -> DeepSparkModel:
        """Set parameters by name."""
        set_params(self, self._input_kwargs)
        return self

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return self.answered(dataset, self.featuresCol)

    def write(self) -> MLWriter:
        """Return the writer of the model and its bundle."""
        return _ModelWriter(self)

    @classmethod
    def read(cls) -> MLReader[DeepSparkModel]:
        """Return the reader of saved models."""
        return _ModelReader()


class _ModelWriter(MLWriter):
    def __init__(self, model: DeepSparkModel) -> None:
        super().__init__()
        self._model = model

    def saveImpl(self, path: str) -> None:
        folder = local_folder(path)
        DefaultParamsWriter.saveMetadata(self._model, path, self.sparkSession)
        shutil.copytree(self._model.getBundle(), folder / _BUNDLE)


class _ModelReader(MLReader[DeepSparkModel]):
    def load(self, path: str) -> DeepSparkModel:
        folder = local_folder(path)
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        model = DeepSparkModel()
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model._set(bundle=str(folder / _BUNDLE))


def local_folder(path: str) -> Path:
    """Return a path of Spark as a local path.

    Raises:
        ConfigError: The path is on a file system that programs do not see as files.

    Example:
        >>> local_folder("file:///data/a%20model"), local_folder("models/mine").is_absolute()
        (PosixPath('/data/a model'), True)
    """
    url = urlparse(path)
    if url.scheme not in ("", "file"):
        msg = (
            f"path={path}: a model is saved with its bundle, which workers read as files; give a folder that driver and"
            " workers see, e.g. file:///mnt/shared/model"
        )
        raise ConfigError(msg)
    return Path(path if not url.scheme else unquote(url.path)).absolute()
