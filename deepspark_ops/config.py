"""Every option of every stage, declared once.

The command line, the DAG's form (JSON schema) and the jobs read these models; nothing else declares a default.
A field with ``json_schema_extra=FORM`` appears in the form of the DAG that runs its stage. Paths are stored as given;
``resolve_against`` of the caller makes them absolute before a job sees them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deepspark_ops.errors import ConfigError

FORM: dict[str, Any] = {"form": True}
SourceFormat = Literal["auto", "image_list", "idx", "cifar_binary", "caffe_lmdb"]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
_SCHEDULE = r"[0-9.eE+-]+@\d+( +[0-9.eE+-]+@\d+)*"


def schedule_entries(text: str) -> tuple[tuple[int, float], ...]:
    """Return ``(clock, value)`` of a schedule ``VALUE@CLOCK ...``: from that minibatch of the clock on, that value.

    Raises:
        ValueError: Not such a text, not from 0 on, or not ascending.

    Example:
        >>> schedule_entries("1@0 10@2000")
        ((0, 1.0), (2000, 10.0))
    """
    hint = "a schedule is VALUE@CLOCK, one after another from @0 on, e.g. '1@0 10@2000'"
    if not re.fullmatch(_SCHEDULE, text.strip()):
        raise ValueError(hint)
    pairs = (entry.split("@") for entry in text.split())
    entries = tuple((int(clock), float(value)) for value, clock in pairs)
    clocks = [clock for clock, _ in entries]
    if clocks[0] != 0 or clocks != sorted(set(clocks)):
        msg = f"the clocks {', '.join(map(str, clocks))} do not begin at 0 and ascend; {hint}"
        raise ValueError(msg)
    return entries


def _period_schedule(text: str) -> str:
    for _, value in schedule_entries(text):
        if value != int(value) or not 1 <= value <= 1_000_000:
            msg = f"{value:g} is not a whole number from 1 to 1000000"
            raise ValueError(msg)
    return text


def _rate_schedule(text: str) -> str:
    for _, value in schedule_entries(text):
        if not 0.0 < value <= 1.0:
            msg = f"{value:g} is not in (0, 1]"
            raise ValueError(msg)
    return text


_AS_PATTERN = Field(json_schema_extra={"pattern": f"^{_SCHEDULE}$"})
PeriodSchedule = Annotated[str, AfterValidator(_period_schedule), _AS_PATTERN]
RateSchedule = Annotated[str, AfterValidator(_rate_schedule), _AS_PATTERN]


class StageConfig(BaseModel):
    """What all stages share: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class CheckConfig(StageConfig):
    """Read the solver and its nets and report what they need, before any cluster time is spent."""

    solver: Path = Field(description="Caffe solver prototxt", json_schema_extra=FORM)
    overrides: str = Field(
        "",
        description="Solver fields in prototxt that replace the file's, e.g. 'max_iter: 200 base_lr: 0.02'",
        json_schema_extra={**FORM, "format": "multiline"},
    )
    weights: Path | None = Field(
        None, description="Fine-tune: .caffemodel whose blobs are copied by layer name", json_schema_extra=FORM
    )
    dataset: Path | None = Field(None, description="Ingested dataset; without it the net's own sources are read")
    ingests_first: bool = Field(
        False, description="The data will be ingested later: what depends on them is not checked now"
    )
    n_workers: int = Field(2, ge=1, le=10_000, description="Training workers", json_schema_extra=FORM)
    svg: Path | None = Field(
        None, description="Draw the training net (without one, the first test net) to this SVG file"
    )
    parity: bool = Field(False, description="Run the recorded cases of Caffe for the layer types that the nets use")
    parity_cases: Path | None = Field(None, description="Folder of recorded cases; default: the checkout's own")
    run_dir: Path | None = Field(None, description="Folder of the run that keeps the comparison, as parity.json")


class IngestConfig(StageConfig):
    """Turn raw files into Caffe-readable shards: ``<output>/train`` and ``<output>/test``, each with dataset.json."""

    source: Path = Field(
        description="Training data: image list ('path label' lines; inside a tar as ARCHIVE.tar.gz::LIST), IDX images,"
        " a folder of CIFAR binary batches (data_batch_*.bin) or one batch, or a Caffe LMDB",
        json_schema_extra=FORM,
    )
    test_source: Path | None = Field(
        None, description="Test data of the same format; without it test_fraction is split off", json_schema_extra=FORM
    )
    test_fraction: Fraction = Field(
        0.2,
        description="Share of each label that becomes the test set, chosen by a stable hash; 0: no test set;"
        " unused with test_source",
        json_schema_extra=FORM,
    )
    source_format: SourceFormat = Field("auto", description="auto looks at the source", json_schema_extra=FORM)
    root_folder: Path | None = Field(
        None,
        description="Folder that the list's paths start from (of the archive, if the list is in one); default: its own",
        json_schema_extra=FORM,
    )
    labels: Path | None = Field(
        None, description="IDX label file of source; default: beside the images, by its usual name"
    )
    class_names: Path | None = Field(
        None,
        description="Text file with one class name per line, in label order, also ARCHIVE::FILE",
        json_schema_extra=FORM,
    )
    output: Path = Field(description="Dataset folder to write")
    shard_format: Literal["lmdb", "hdf5"] = Field("lmdb", description="File format of shards", json_schema_extra=FORM)
    encoded: bool = Field(False, description="Keep images compressed in the shards (LMDB only)", json_schema_extra=FORM)
    resize_height: int = Field(0, ge=0, le=16_384, description="Pixels; 0 keeps the size", json_schema_extra=FORM)
    resize_width: int = Field(0, ge=0, le=16_384, description="Pixels; 0 keeps the size", json_schema_extra=FORM)
    gray: bool = Field(False, description="Read images as gray", json_schema_extra=FORM)
    max_pixel: int = Field(
        255,
        ge=1,
        le=255,
        description="Largest pixel value of the source; scaled to 255 (digits8x8: 16)",
        json_schema_extra=FORM,
    )
    shuffle: bool = Field(True, description="Store samples in a fixed random order", json_schema_extra=FORM)
    seed: int = Field(1, ge=0, description="Decides the split and the order", json_schema_extra=FORM)
    n_classes: int | None = Field(
        None, ge=1, description="Refuse labels outside [0, n_classes); default: from class_names, else from the data"
    )
    samples_per_shard: int = Field(10_000, ge=1, description="Upper bound; shards also stay below 2 GiB")
    max_rejected_fraction: Fraction = Field(
        0.01, description="More bad records than this share fail the task", json_schema_extra=FORM
    )
    master: str = Field("local[*]", description="Spark master")

    @model_validator(mode="after")
    def _check(self) -> IngestConfig:
        if (self.resize_height == 0) != (self.resize_width == 0):
            msg = f"resize_height={self.resize_height}, resize_width={self.resize_width}: give both or neither"
            raise ValueError(msg)
        if self.encoded and self.shard_format == "hdf5":
            msg = "encoded=true: HDF5 shards hold decoded arrays; use shard_format=lmdb or encoded=false"
            raise ValueError(msg)
        return self


class TrainConfig(StageConfig):
    """Train a Caffe net with N workers that exchange parameters with a center."""

    solver: Path = Field(description="Caffe solver prototxt", json_schema_extra=FORM)
    overrides: str = Field(
        "",
        description="Solver fields in prototxt that replace the file's, e.g. 'max_iter: 200 base_lr: 0.02'",
        json_schema_extra={**FORM, "format": "multiline"},
    )
    dataset: Path | None = Field(
        None, description="Ingested dataset that replaces source and mean_file of the nets' data layers"
    )
    run_dir: Path = Field(description="Folder of the run: snapshots, events, resolved net and solver")
    verify: Literal["auto", "digests", "sizes"] = Field(
        "auto",
        description="How the dataset is compared with its manifests before workers start; digests reads every byte,"
        " sizes walks the pages alone, auto reads every byte up to 1 GiB",
    )
    weights: Path | None = Field(
        None, description="Fine-tune: .caffemodel whose blobs are copied by layer name", json_schema_extra=FORM
    )
    resume: Path | None = Field(
        None, description="Caffe .solverstate to go on from (not together with weights)", json_schema_extra=FORM
    )
    parity: bool = Field(
        False,
        description="First run the recorded cases of Caffe for the layer types of the nets; RUN/parity.json keeps them",
    )
    n_workers: int = Field(2, ge=1, le=10_000, description="Training workers", json_schema_extra=FORM)
    strategy: str = Field("easgd", description="How workers and center meet", json_schema_extra=FORM)
    strategy_options: str = Field(
        "",
        description="The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file"
        " ('period: 50 moving_rate: 0.1 ...') as it is",
        json_schema_extra={**FORM, "format": "multiline"},
    )
    comm_period: Literal["auto"] | Annotated[int, Field(ge=1, le=1_000_000)] | PeriodSchedule = Field(
        "auto",
        description="tau, minibatches between exchanges; auto: the smallest whose exchange costs under 2 % of the time;"
        " '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10",
        examples=["10", "1@0 10@2000"],
        json_schema_extra=FORM,
    )
    moving_rate: RateSchedule | Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None,
        description="alpha of elastic averaging; default min(0.45, 0.9 / n_workers); '0.4@0 0.2@2000': by the clock",
        examples=["0.4", "0.4@0 0.2@2000"],
        json_schema_extra=FORM,
    )
    rate_scale: Literal["auto", "none"] | Annotated[float, Field(gt=0.0)] = Field(
        "auto",
        description="Multiplies base_lr; auto makes up for the progress per step (capped at 4), with warm-up",
        json_schema_extra=FORM,
    )
    lock: Literal["none", "striped", "full"] = Field(
        "none",
        description="none: fastest, pushes that overlap may lose a part; striped: every push survives; full: one"
        " exchange at a time. A strategy that needs more than is given gets what it needs",
        json_schema_extra=FORM,
    )
    transport: Literal["auto", "shm", "socket"] = Field(
        "auto", description="auto: shared memory for workers on the server's host, else sockets"
    )
    record: bool = Field(
        False, description="Keep the order of grants and chunks in RUN/record; with lock striped or full, shared memory"
    )
    replay: Path | None = Field(None, description="Run that was recorded: do it again, bit for bit, without Spark")
    overlap: bool = Field(
        False,
        description="Elastic strategies: compute the next period while this one's parameters are exchanged",
        json_schema_extra=FORM,
    )
    n_servers: int = Field(
        1,
        ge=1,
        le=64,
        description="Server processes for workers by socket, each with a key range of the center; for large models",
        json_schema_extra=FORM,
    )
    wire_dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32",
        description="How pushed numbers travel by socket; the worker keeps what 16 bits cannot say. bfloat16 is faster",
        json_schema_extra=FORM,
    )
    order: Literal["auto", "file", "shuffled"] = Field(
        "auto", description="Order of samples; auto: file order for one worker (as Caffe), else shuffled"
    )
    threads_per_worker: int = Field(
        1, ge=1, le=1_024, description="TensorFlow threads of each worker", json_schema_extra=FORM
    )
    worker_tries: int = Field(4, ge=1, le=100, description="Starts of one worker before it is given up")
    grant_timeout_s: float = Field(120.0, gt=0.0, description="A worker silent for this long loses its grant")
    exchange_timeout_s: float = Field(30.0, gt=0.0, description="A worker waits this long for the server, then fails")
    listen_address: str = Field("127.0.0.1", description="Address the exchange server listens on (explicit)")
    listen_port: int = Field(0, ge=0, le=65_535, description="0: chosen by the system")
    master: str = Field("local[*]", description="Spark master")

    @field_validator("strategy_options", mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        """Take a mapping, which JSON and Python users find easier to write, as the text it stands for."""
        if not isinstance(given, Mapping):
            return given
        # JSON's words for booleans are also the text's.
        return " ".join(
            f"{name}: {json.dumps(value) if isinstance(value, bool) else value}" for name, value in given.items()
        )

    @model_validator(mode="after")
    def _check(self) -> TrainConfig:
        if self.weights and self.resume:
            msg = f"weights={self.weights} and resume={self.resume}: give one; a solverstate brings its own weights"
            raise ValueError(msg)
        if self.transport == "shm" and (self.wire_dtype != "float32" or self.n_servers > 1):
            msg = (
                f"wire_dtype={self.wire_dtype}, n_servers={self.n_servers}: with transport=shm workers write the center"
                " themselves; use float32 and 1, or transport=auto"
            )
            raise ValueError(msg)
        return self


class EvaluateConfig(StageConfig):
    """Score a trained net on a dataset: top-1, top-5, loss, confusion matrix, per-class accuracy."""

    run_dir: Path = Field(description="Run whose last snapshot is scored")
    dataset: Path | None = Field(None, description="Ingested dataset; default: the one the run trained on")
    split: Literal["train", "test"] = Field("test", description="Part of the dataset to score", json_schema_extra=FORM)
    weights: Path | None = Field(
        None, description="Score this .caffemodel with the run's net instead of its last snapshot"
    )
    output: Path | None = Field(None, description="Folder for metrics.json and report.html; default RUN/evaluation")
    batch_size: int = Field(100, ge=1, le=100_000, description="Samples per forward pass")
    worst: int = Field(24, ge=0, le=1_000, description="Most confident mistakes shown as pictures in the report")


class ExportConfig(StageConfig):
    """Write the deliverable: SavedModel, .caffemodel, deploy.prototxt, labels, mean, metrics, manifest."""

    run_dir: Path = Field(description="Run to export")
    output: Path | None = Field(None, description="Bundle folder; default RUN/bundle")
    weights: Path | None = Field(None, description="Export this .caffemodel instead of the run's last snapshot")
    check_samples: int = Field(32, ge=1, le=10_000, description="Real samples on which the exported model must agree")


class PromoteConfig(StageConfig):
    """Put a bundle into production if it is better than the one there."""

    models: Path = Field(Path("models"), description="Folder of models in production", json_schema_extra=FORM)
    model: str = Field(
        "model",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the model in production: at most 64 letters, digits, dots, dashes and underscores",
        json_schema_extra=FORM,
    )
    metric: Literal["top1", "top5", "loss"] = Field("top1", description="What must be better", json_schema_extra=FORM)
    min_gain: float = Field(0.0, ge=0.0, description="How much better, in the metric's unit", json_schema_extra=FORM)


class PlanConfig(StageConfig):
    """Predict images/s, staleness, server load and time per epoch for many numbers of workers, by simulation."""

    solver: Path = Field(description="Caffe solver prototxt")
    overrides: str = Field(
        "", description="Solver fields in prototxt that replace the file's, e.g. 'max_iter: 200 base_lr: 0.02'"
    )
    workers: str = Field(
        "1,2,4,8,16,64,256,1000,10000",
        pattern=r"^\d+(,\d+)*$",
        description="Numbers of workers to predict for, with commas",
    )
    strategy: str = Field("easgd", description="How workers and center meet")
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
    step_ms: float | None = Field(
        None, gt=0.0, description="Milliseconds of one minibatch; default: of from_run, else estimated by operations"
    )
    from_run: Path | None = Field(None, description="Folder of a run whose events say how long a minibatch takes")
    threads_per_worker: int = Field(1, ge=1, le=1_024, description="TensorFlow threads of each worker")
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
    dataset: Path | None = Field(None, description="Ingested dataset: shapes, and the samples of an epoch")
    sample_shape: str | None = Field(
        None, pattern=r"^\d+(x\d+)*$", description="Shape of a sample, e.g. 3x32x32, where the data are not here"
    )
    epoch_images: int | None = Field(None, ge=1, description="Samples of an epoch; default: as many as the data have")
    seed: int = Field(0, ge=0, description="Of the simulated times")
    plot: Path | None = Field(None, description="Draw the prediction to this SVG file")

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """Numbers of workers to predict for, ascending."""
        return tuple(sorted({int(count) for count in self.workers.split(",")}))

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
        if self.host_cores is not None and self.transport != "shm":
            msg = f"host_cores={self.host_cores}: with transport=socket every worker has a host of its own"
            raise ValueError(msg)
        return self


Config = TypeVar("Config", bound=StageConfig)


def parse_config(model: type[Config], values: dict[str, Any]) -> Config:
    """Validate ``values`` as ``model``.

    Raises:
        ConfigError: One line per wrong field: name, finding, value.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        findings: dict[str, list[str]] = {}
        problems = error.errors()
        refused = {str(found["loc"][0]) for found in problems if found["loc"] and found["type"] != "string_type"}
        for problem in problems:
            # Members of a union carry the member's tag in their place; the field is what the user wrote.
            name = str(problem["loc"][0]) if problem["loc"] else model.__name__
            if problem["type"] == "string_type" and name in refused:
                continue  # the field takes text, too, but this was none
            finding = problem["msg"].removeprefix("Value error, ")
            known = f"; known: {', '.join(model.model_fields)}" if problem["type"] == "extra_forbidden" else ""
            if problem["type"] == "string_pattern_mismatch":  # which few read
                finding = f"is not what the field takes: {model.model_fields[name].description}"
            start = f"{name}={problem['input']!r}: " if problem["loc"] and problem["type"] != "missing" else f"{name}: "
            findings.setdefault(start, []).append(finding + known)
        lines = [start + _alternatives(list(dict.fromkeys(found))) for start, found in findings.items()]
        raise ConfigError("\n".join(lines)) from error


def _alternatives(findings: list[str]) -> str:
    """Join what the members of a union say of a value, without what pydantic repeats.

    Example:
        >>> _alternatives(["Input should be 'auto'", "Input should be a valid integer"])
        "Input should be 'auto' or a valid integer"
    """
    short = [re.sub(r", unable to parse string as an? (integer|number)$", "", finding) for finding in findings]
    return " or ".join([*short[:1], *(finding.removeprefix("Input should be ") for finding in short[1:])])
