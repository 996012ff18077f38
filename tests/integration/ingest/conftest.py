"""One Spark for all tests of this folder in a process: pyspark keeps its first JVM and starts no second context."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="package")
def context(tmp_path_factory):
    """Yield a SparkContext of two cores on this host."""
    from deepspark_ops.processes.spark_context import start_context
    from deepspark_ops.processes.spark_submit import spark_conf

    properties = {
        **spark_conf(),
        "spark.app.name": "ingest",
        # Code that Spark compiles for each query pays off for large tables alone.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    old_environment = dict(os.environ)
    started = start_context("local[2]", properties, listen_address="127.0.0.1", insecure_network=False)
    yield started
    started.stop()
    for name in (
        os.environ.keys() - old_environment.keys()
    ):  # a job's process ends with its job; this process has other tests
        del os.environ[name]
