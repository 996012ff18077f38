"""Settings of the tasks in DeepSpark's DAGs: the Airflow Variable ``deepspark_defaults``, and the form's Spark part."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from deepspark_ops.config.base import EXPERT, StageConfig
from deepspark_ops.config.shared_options.durations import Duration

DEFAULT_CONNECTION: Final = "spark_default"


class SparkTaskConfig(StageConfig):
    """Spark connection and cluster resources of the stages."""

    conn_id: str = Field(
        DEFAULT_CONNECTION,
        title="Spark connection",
        description="Airflow connection whose Spark runs ingestion and training; deepspark_defaults names the choices",
        json_schema_extra=EXPERT,
    )
    driver_memory: str | None = Field(
        None,
        pattern=r"^[1-9]\d*[kmgtKMGT]$",
        title="Memory of the driver",
        description="Memory of the Spark driver, e.g. 4g; default: the connection's or Spark's",
        json_schema_extra={**EXPERT, "allowed": "a size as Spark takes it, like 800m or 4g"},
    )
    executor_memory: str | None = Field(
        None,
        pattern=r"^[1-9]\d*[kmgtKMGT]$",
        title="Memory of an executor",
        description="Memory of each Spark executor, e.g. 8g; default: the connection's or Spark's",
        json_schema_extra={**EXPERT, "allowed": "a size as Spark takes it, like 800m or 4g"},
    )
    num_executors: int | None = Field(
        None,
        ge=1,
        le=10_000,
        title="Executors",
        description="Number of Spark executors, on YARN and Kubernetes; default: the cluster's",
        json_schema_extra=EXPERT,
    )
    executor_cores: int | None = Field(
        None,
        ge=1,
        le=1_024,
        title="Cores of an executor",
        description="Cores of each Spark executor; default: the cluster's",
        json_schema_extra=EXPERT,
    )


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class TaskSettings(SparkTaskConfig):
    """The Variable ``deepspark_defaults``, JSON. Users who may change Variables set options that no form has."""

    connections: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        (), description="Further Spark connections in the form, beside conn_id"
    )
    conf: dict[str, str | int | float | bool] = Field({}, description="Spark properties of every stage")
    store_conn_id: str | None = Field(
        None, min_length=1, description="Airflow connection with the credentials of an object store"
    )
    pool: str | None = Field(None, min_length=1, description="Airflow pool of the tasks")
    queue: str | None = Field(None, min_length=1, description="Queue of the tasks, for executors with queues")
    execution_timeout: Duration | None = Field(
        None, description="Longest time of a task, with a unit: 90 min, 24 h, 2 d; a training takes a snapshot then"
    )
