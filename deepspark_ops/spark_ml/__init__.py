"""Nets as stages of Spark ML pipelines: a transformer that answers, an estimator that trains.

    from deepspark_ops.spark_ml import DeepSparkEstimator, DeepSparkModel, DeepSparkTransformer

The only package, besides ``spark_job.py`` and ``spark_udf.py``, that imports pyspark.
"""

from deepspark_ops.spark_ml.estimator import DeepSparkEstimator
from deepspark_ops.spark_ml.model import DeepSparkModel
from deepspark_ops.spark_ml.transformer import DeepSparkTransformer

__all__ = ["DeepSparkEstimator", "DeepSparkModel", "DeepSparkTransformer"]
