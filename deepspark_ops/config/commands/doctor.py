"""Options of ``deepspark doctor``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import InsecureNetwork, ListenAddress, ListenPort, StageConfig
from deepspark_ops.config.shared_options.worker_count import ALLOWED_COUNTS, WorkerCount


class DoctorConfig(StageConfig):
    """Check whether this host and a cluster are fit for a run."""

    master: str | None = Field(
        None, description="Spark master to look at; default: the one that --connection names, else local[*]"
    )
    n_workers: WorkerCount = Field(
        2, description="Workers that a run would have, e.g. 4 or 4..16", json_schema_extra={"allowed": ALLOWED_COUNTS}
    )
    home: Path = Field(
        Path(),
        description="Folder in which runs and datasets would be: all executors must see it under this path",
    )
    connection: str | None = Field(None, description="Airflow's Spark connection to look at, e.g. spark_default")
    listen_address: ListenAddress = "auto"
    listen_port: ListenPort = 0
    n_servers: int = Field(1, ge=1, le=64, description="Server processes of the exchange; each has a port")
    insecure_network: InsecureNetwork = False
    timeout_s: float = Field(300.0, gt=0.0, description="Seconds that Spark may take for its job")
