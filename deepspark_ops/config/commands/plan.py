"""Options of stage plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from deepspark_ops.config.base import DataPathField, SampleShape, StageConfig
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart


def _counts(text: str) -> list[int]:
    """Return a number, or the numbers of a range: each twice the number before, and the largest number.

    Example:
        >>> _counts("3"), _counts("4..20"), _counts("4..4")
        ([3], [4, 8, 16, 20], [4])
    """
    if ".." not in text:
        return [int(text)]
    fewest, most = map(int, text.split(".."))
    return sorted({fewest, most, *(fewest << power for power in range(64) if fewest << power < most)})


class PlanConfig(StageConfig):
    """Predict images/s, staleness, server load and time per epoch for many numbers of workers, by simulation."""

    solver: Path = Field(description="Caffe solver prototxt")
    overrides: str = Field(
        "", description="Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'"
    )
    workers: str = Field(
        "1,2,4,8,16,64,256,1000,10000",
        pattern=r"^(\d+|\d+\.\.\d+)(,(\d+|\d+\.\.\d+))*$",
        description="Numbers of workers to predict for, with commas; 4..16 is 4,8,16",
        json_schema_extra={"allowed": "whole numbers or ranges with commas, like 1,2,4..16"},
    )
    strategy: str = Field(
        "easgd", description="How workers and center exchange parameters", json_schema_extra={"one_of": "strategy"}
    )
    comm_period: Literal["auto"] | Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        "auto", description="tau, minibatches between exchanges; auto: as training chooses it"
    )
    n_servers: int = Field(1, ge=1, le=64, description="Key ranges of the center, each a server process of its own")
    wire_dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="How pushed numbers travel by socket"
    )
    transport: Literal["socket", "shm"] = Field(
        "socket", description="socket: every worker on a host of its own; shm: all on the server's host"
    )
    workers_per_host: int = Field(
        1, ge=1, le=65_536, description="Workers of each host; above 1 they share a center (easgd's center: tree)"
    )
    step_ms: float | None = Field(
        None, gt=0.0, description="Milliseconds of one minibatch; default: of from_run, else estimated by operations"
    )
    from_run: Path | None = Field(None, description="Folder of a run whose events say how long a minibatch takes")
    threads_per_worker: Literal["auto"] | Annotated[int, Field(ge=1, le=1_024)] = Field(
        "auto",
        description="TensorFlow threads of each worker; auto: its share of host_cores, 1 where they are not given",
    )
    gpus_per_worker: int = Field(
        1,
        ge=1,
        le=1_024,
        description="Devices of each worker that compute passes of their own: a minibatch has so many times the"
        " samples, and step_ms is the time of such a one. 1 for a net that is placed over several",
    )
    host_cores: int | None = Field(
        None, ge=1, le=65_536, description="Cores of the one host, with transport=shm; default: enough"
    )
    worker_cores: float | None = Field(
        None, gt=0.0, le=1_024.0, description="Cores that a worker keeps busy, data included; default: threads + 0.02"
    )
    bandwidth_gbps: float = Field(10.0, gt=0.0, description="Gbit/s of a host's link, in each direction")
    latency_us: float = Field(50.0, ge=0.0, description="Microseconds from host to host, one way")
    server_gbytes_per_s: float = Field(
        2.4, gt=0.0, description="GB/s in and out that a server process manages (benchmarks/exchange.py, socket)"
    )
    memory_gbytes_per_s: float = Field(
        12.0, gt=0.0, description="GB/s to and from the center that a worker manages in shared memory (likewise, shm)"
    )
    control_us: float = Field(145.0, gt=0.0, description="Microseconds of a control call on one host (likewise)")
    loop_us: float = Field(
        300.0, ge=0.0, description="Microseconds that the worker loop adds to an exchange (benchmarks/plan.py)"
    )
    cold_gbytes_per_s: float = Field(
        1.9, gt=0.0, description="GB/s at which parameters come back into the caches for an exchange (likewise)"
    )
    straggler_spread: float = Field(
        0.05, ge=0.0, le=5.0, description="Standard deviation of the workers' speeds, relative to their mean"
    )
    step_jitter: float = Field(
        0.05, ge=0.0, le=5.0, description="Standard deviation of a worker's minibatch times, relative to their mean"
    )
    dataset: DataPathField | None = Field(None, description="Ingested dataset: shapes, and the samples of an epoch")
    sample_shape: SampleShape = None
    epoch_images: int | None = Field(None, ge=1, description="Samples of an epoch; default: as many as the data have")
    seed: int = Field(0, ge=0, description="Of the simulated times")
    plot: Path | None = Field(None, description="Draw the prediction to this SVG file")
    named_files: NamedFilesPart = AS_GIVEN

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """Numbers of workers to predict for, ascending."""
        return tuple(sorted({count for text in self.workers.split(",") for count in _counts(text)}))

    @model_validator(mode="after")
    def _check(self) -> PlanConfig:
        if not 1 <= self.worker_counts[0] <= self.worker_counts[-1] <= 100_000:
            msg = f"workers={self.workers}: each must be 1 to 100000"
            raise ValueError(msg)
        if self.step_ms is not None and self.from_run is not None:
            msg = f"step_ms={self.step_ms:g} and from_run={self.from_run}: give one; a run says how long a step takes"
            raise ValueError(msg)
        if self.transport == "shm" and (self.n_servers > 1 or self.wire_dtype != "float32"):
            msg = "transport=shm: workers write the center itself; n_servers and wire_dtype are for transport=socket"
            raise ValueError(msg)
        if self.transport == "shm" and self.workers_per_host > 1:
            msg = f"workers_per_host={self.workers_per_host}: with transport=shm all workers are on the server's host"
            raise ValueError(msg)
        if self.host_cores is not None and self.transport != "shm":
            msg = f"host_cores={self.host_cores}: with transport=socket every worker has a host of its own"
            raise ValueError(msg)
        return self
