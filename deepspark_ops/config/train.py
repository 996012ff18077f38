"""Options of stage train."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from deepspark_ops.config.base import (
    DEFAULT_STAGING_SIZE,
    EXPERT,
    FORM,
    DataPathField,
    Engine,
    InsecureNetwork,
    ListenAddress,
    ListenPort,
    SolverFile,
    SolverOverrides,
    SparkMaster,
    StageConfig,
    StagingFolder,
    StagingSize,
    StartWeights,
    file_list_text,
)
from deepspark_ops.config.shared_options.devices import (
    DeviceChoice,
    GpusPerWorker,
    PlacementChoice,
    PrecisionChoice,
    Recompute,
    ShareGpus,
    Tf32,
)
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart
from deepspark_ops.config.shared_options.schedules import AccuracyFloor, PeriodSchedule, RateSchedule
from deepspark_ops.config.shared_options.worker_count import AUTO, WorkerRange, Workers


class TrainConfig(StageConfig):
    """Train a Caffe net with N workers that exchange parameters with a center."""

    solver: SolverFile
    overrides: SolverOverrides = ""
    dataset: DataPathField | None = Field(
        None, description="Ingested dataset, in place of source and mean_file of the nets' data layers"
    )
    run_dir: Path = Field(description="Folder of the run: snapshots, events, resolved net and solver")
    verify: Literal["auto", "digests", "sizes"] = Field(
        "auto",
        title="Check of the dataset",
        description="How the dataset is compared with its manifests before workers start; digests reads every byte,"
        " sizes walks the pages alone, auto reads every byte up to 1 GiB",
        json_schema_extra=EXPERT,
    )
    weights: StartWeights = None
    resume: Path | None = Field(
        None,
        title="Go on from a solverstate",
        description="Caffe .solverstate to go on from (not together with weights)",
        json_schema_extra=EXPERT,
    )
    parity: bool = Field(
        False,
        description="First run the recorded cases of Caffe for the layer types of the nets; RUN/parity.json keeps them",
    )
    n_workers: Workers = 2
    strategy: str = Field(
        "easgd",
        title="Strategy",
        description="Method of exchange between workers and center; auto: by the number of workers, and whether"
        " workers may differ",
        json_schema_extra={**FORM, "one_of": "strategy or auto"},
    )
    strategy_options: str = Field(
        "",
        title="Options of the strategy",
        description="The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file"
        " ('period: 50 moving_rate: 0.1 ...') as it is",
        json_schema_extra={**EXPERT, "format": "multiline"},
    )
    comm_period: Literal["auto"] | Annotated[int, Field(ge=1, le=1_000_000)] | PeriodSchedule = Field(
        "auto",
        title="Minibatches between exchanges (tau)",
        description="tau, minibatches between exchanges; auto: the smallest tau with exchanges under 10 % of the time;"
        " '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10",
        examples=["10", "1@0 10@2000"],
        json_schema_extra={**FORM, "allowed": "auto, a whole number, or a schedule like 1@0 10@2000"},
    )
    moving_rate: RateSchedule | Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None,
        title="Moving rate (alpha)",
        description="alpha of elastic averaging; default 0.45 with 2 workers, 0.3 with more (deepspark: 2.4 / n_workers"
        " with more than 8); '0.4@0 0.2@2000': by the clock",
        examples=["0.4", "0.4@0 0.2@2000"],
        json_schema_extra={**EXPERT, "allowed": "a number above 0, at most 1, or a schedule like 0.4@0 0.2@2000"},
    )
    rate_scale: Literal["auto", "none"] | Annotated[float, Field(gt=0.0)] = Field(
        "auto",
        title="Scale of the learning rate",
        description="Multiplies base_lr; auto makes up for the progress per step (at most 4, but for easgd), warms up;"
        " with three workers of easgd and more, measured curvature bounds the rates in nets with convolutions",
        examples=["0.5"],
        json_schema_extra={**EXPERT, "allowed": "auto, none, or a number above 0"},
    )
    lock: Literal["none", "striped", "full"] = Field(
        "none",
        title="Lock of the center",
        description="none: fastest, overlapping pushes may lose a part; striped: every push survives; full: one"
        " exchange at a time. A strategy with a need for a stronger lock gets the stronger lock",
        json_schema_extra=EXPERT,
    )
    transport: Literal["auto", "shm", "socket"] = Field(
        "auto",
        title="Transport",
        description="auto: shared memory for workers on the server's host, else sockets",
        json_schema_extra=EXPERT,
    )
    overlap: bool = Field(
        False,
        title="Exchange while computing",
        description="Elastic strategies: compute the next period during the exchange of this period's parameters",
        json_schema_extra=EXPERT,
    )
    n_servers: int = Field(
        1,
        ge=1,
        le=64,
        title="Server processes",
        description="Server processes for workers by socket, each with a key range of the center; for large models",
        json_schema_extra=EXPERT,
    )
    wire_dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32",
        title="Numbers on the wire",
        description="Format of pushed numbers on a socket; the worker keeps the rounding error of 16 bits. bfloat16 is"
        " faster",
        json_schema_extra=EXPERT,
    )
    order: Literal["auto", "file", "shuffled"] = Field(
        "auto",
        title="Order of samples",
        description="Order of samples; auto: file order for one worker (as Caffe), else shuffled",
        json_schema_extra=EXPERT,
    )
    devices: DeviceChoice = "auto"
    share_gpus: ShareGpus = False
    threads_per_worker: Literal["auto"] | Annotated[int, Field(ge=1, le=1_024)] = Field(
        "auto",
        title="Threads of a worker",
        description="TensorFlow threads of each worker on the CPU; auto: the worker's share of the available cores",
        examples=["2"],
        json_schema_extra={**EXPERT, "allowed": "auto, or a whole number from 1 to 1024"},
    )
    gpus_per_worker: GpusPerWorker = 1
    placement: PlacementChoice = "none"
    recompute: Recompute = False
    precision: PrecisionChoice = "float32"
    tf32: Tf32 = False
    stop_below: AccuracyFloor = Field(
        "",
        title="Least accuracies",
        description="End the training with a snapshot if the first test at or after a clock has a lower accuracy:"
        " ACCURACY@CLOCK, e.g. 0.3@500 0.6@1000",
        json_schema_extra={**EXPERT, "allowed": "ACCURACY@CLOCK with ascending clocks, like 0.3@500 0.6@1000"},
    )
    min_workers: int = Field(
        1,
        ge=1,
        le=10_000,
        title="Fewest workers",
        description="The run fails if fewer workers have a slot of the cluster for min_workers_wait_s",
        json_schema_extra=EXPERT,
    )
    min_workers_wait_s: float = Field(600.0, gt=0.0, description="Seconds of waiting for min_workers")
    worker_tries: int = Field(
        4,
        ge=1,
        le=100,
        description="Starts of a worker without an exchange in between, before the worker is given up; 1: no second"
        " start",
    )
    grant_timeout_s: float = Field(120.0, gt=0.0, description="A worker silent for this long loses its grant")
    exchange_timeout_s: float = Field(30.0, gt=0.0, description="A worker waits this long for the server, then fails")
    listen_address: ListenAddress = "auto"
    staging_folder: StagingFolder = None
    staging_size: StagingSize = DEFAULT_STAGING_SIZE
    listen_port: ListenPort = 0
    check_pushes: bool = Field(
        True,
        title="Refuse nonsense",
        description="Refuse a worker's push with numbers that are not finite (NaN, infinity), or a million times as"
        " long as any push before",
        json_schema_extra=EXPERT,
    )
    watch: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        title="Watch the weights",
        description="Minibatches between histograms of every blob and its update, and the workers' distances to the"
        " center by blob, on the page Training; 0: none",
        json_schema_extra=EXPERT,
    )
    tls: Literal["auto", "on", "off", "mac"] = Field(
        "auto",
        title="Encrypted exchange",
        description="Protection of the exchange by socket; auto: TLS 1.3 unless the server listens on this host alone;"
        " mac: in clear, but changed messages are refused; off: no protection, on a cluster's network only with"
        " insecure_network",
        json_schema_extra=EXPERT,
    )
    insecure_network: InsecureNetwork = False
    spark_ui: bool = Field(
        False,
        title="Spark's own pages",
        description="Serve Spark's UI while workers train, without a login; with a local master on 127.0.0.1 alone."
        " The run's page and log have the address",
        json_schema_extra=EXPERT,
    )
    named_files: NamedFilesPart = AS_GIVEN
    engine: Engine = Field(
        "auto",
        description="Runner of the workers: spark, process (processes of this host), or auto (in a DAG spark; else"
        " processes unless master or spark_ui is given)",
    )
    master: SparkMaster = "local[*]"

    @field_validator("strategy_options", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Convert a mapping into text; in JSON and Python a mapping is easier to write."""
        if not isinstance(value, Mapping):
            return value
        # JSON's words for booleans are also the text's.
        return " ".join(
            f"{name}: {json.dumps(option) if isinstance(option, bool) else option}" for name, option in value.items()
        )

    @model_validator(mode="after")
    def _check(self) -> TrainConfig:
        if self.share_gpus and self.devices == "cpu":
            msg = "share_gpus=true and devices=cpu: there is no GPU to share; use devices=auto or gpu, or no share_gpus"
            raise ValueError(msg)
        if self.weights and self.resume:
            weights = file_list_text(self.weights)
            msg = f"weights={weights} and resume={self.resume}: give one; a solverstate brings its own weights"
            raise ValueError(msg)
        if self.engine == "process" and not self.master.startswith("local"):
            msg = (
                f"engine=process, master={self.master}: the workers of engine=process are processes of this host; use"
                " engine=spark, or leave master out"
            )
            raise ValueError(msg)
        workers = self.n_workers
        if isinstance(workers, WorkerRange) and workers.text != AUTO and self.min_workers not in (1, workers.fewest):
            msg = f"min_workers={self.min_workers} and n_workers={workers.text}: give one, a range has both"
            raise ValueError(msg)
        if self.min_workers > self.n_workers:
            msg = (
                f"min_workers={self.min_workers} and n_workers={self.n_workers}: that many never train; give"
                f" min_workers from 1 to {self.n_workers}"
            )
            raise ValueError(msg)
        if self.transport == "shm" and (self.wire_dtype != "float32" or self.n_servers > 1):
            msg = (
                f"wire_dtype={self.wire_dtype}, n_servers={self.n_servers}: with transport=shm workers write the center"
                " themselves; use float32 and 1, or transport=auto"
            )
            raise ValueError(msg)
        return self

    @property
    def fewest_workers(self) -> int:
        """Smallest number of workers with a slot; with fewer the run fails after ``min_workers_wait_s``."""
        workers = self.n_workers
        return max(self.min_workers, workers.fewest) if isinstance(workers, WorkerRange) else self.min_workers

    @property
    def is_in_spark(self) -> bool:
        """Whether Spark runs the workers of a command or a Python call. In a DAG ``auto`` is Spark."""
        if self.engine == "auto":
            return "master" in self.model_fields_set or self.spark_ui
        return self.engine == "spark"
