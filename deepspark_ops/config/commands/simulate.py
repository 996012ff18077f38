"""Options of stage simulate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from deepspark_ops.config.base import (
    EXPERT,
    FORM,
    DataPathField,
    Fraction,
    SolverFile,
    SolverOverrides,
    StageConfig,
    StartWeights,
)
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart
from deepspark_ops.config.shared_options.schedules import PeriodSchedule, RateSchedule

_NETWORK = re.compile(r"(?P<rate>\d+(\.\d+)?)(?P<unit>[gm])bit,(?P<latency>\d+(\.\d+)?)(?P<part>us|ms)")
MOST_WORKERS = 1_000


class _VirtualCluster(StageConfig):
    """Shared options of a virtual run and of a table of virtual runs."""

    solver: SolverFile
    overrides: SolverOverrides = ""
    dataset: DataPathField | None = Field(
        None, description="Ingested dataset, in place of source and mean_file of the nets' data layers"
    )
    weights: StartWeights = None
    strategy_options: str = Field("", description="The strategy's own options, e.g. 'block_momentum: 0.5'")
    comm_period: Literal["auto"] | Annotated[int, Field(ge=1, le=1_000_000)] | PeriodSchedule = Field(
        "auto",
        description="tau, minibatches between exchanges; auto: chosen by the virtual times as training does",
        json_schema_extra={"allowed": "auto, a whole number, or a schedule like 1@0 10@2000"},
    )
    moving_rate: RateSchedule | Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None,
        description="alpha of elastic averaging; default: the strategy's",
        json_schema_extra={"allowed": "a number above 0, at most 1, or a schedule like 0.4@0 0.2@2000"},
    )
    rate_scale: Literal["auto", "none"] | Annotated[float, Field(gt=0.0)] = Field(
        "auto",
        description="Multiplies base_lr, as in training",
        json_schema_extra={"allowed": "auto, none, or a number above 0"},
    )
    overlap: bool = Field(
        False,
        title="Exchange while computing",
        description="Elastic strategies: compute the next period during the exchange of this period's parameters",
        json_schema_extra=EXPERT,
    )
    network: str = Field(
        "10gbit,50us",
        title="Network of the virtual hosts",
        description="Link of each host, in each direction, and latency from host to host, one way",
        json_schema_extra=FORM,
    )
    workers_per_host: int = Field(
        1,
        ge=1,
        le=MOST_WORKERS,
        title="Workers of each virtual host",
        description="Workers of a host that share a center, with strategy_options 'center: tree'",
        json_schema_extra=EXPERT,
    )
    stragglers: Fraction = Field(
        0.0,
        title="Slow workers",
        description="Share of the workers that are slow for good",
        json_schema_extra=FORM,
    )
    straggler_factor: float = Field(
        3.0,
        ge=1.0,
        le=1_000.0,
        title="How slow they are",
        description="How many times longer a minibatch takes them",
        json_schema_extra=FORM,
    )
    speed_spread: float = Field(
        0.0,
        ge=0.0,
        le=5.0,
        title="Spread of speeds",
        description="Standard deviation of the workers' speeds, relative to their mean",
        json_schema_extra=EXPERT,
    )
    step_jitter: float = Field(
        0.05,
        ge=0.0,
        le=5.0,
        title="Jitter of minibatches",
        description="Standard deviation of a worker's minibatch times, relative to their mean",
        json_schema_extra=EXPERT,
    )
    deaths: int = Field(
        0,
        ge=0,
        le=1_000,
        title="Deaths",
        description="Workers that are killed in a run, at random; each comes back",
        json_schema_extra=EXPERT,
    )
    restart_s: float = Field(
        10.0,
        ge=0.0,
        title="Seconds until a restart",
        description="Virtual seconds until a killed worker is there again",
        json_schema_extra=EXPERT,
    )
    named_files: NamedFilesPart = AS_GIVEN

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: str) -> str:
        match = _NETWORK.fullmatch(network)
        if match is None or float(match["rate"]) == 0.0:
            msg = "is no bandwidth and latency; allowed: 10gbit,200us or 800mbit,1ms, or alike"
            raise ValueError(msg)
        return network

    @property
    def bandwidth_bytes(self) -> float:
        """Bytes/s of a host's link, in each direction."""
        match = _NETWORK.fullmatch(self.network)
        assert match is not None, "validated"
        return float(match["rate"]) * (1e9 if match["unit"] == "g" else 1e6) / 8

    @property
    def latency_s(self) -> float:
        """Seconds from host to host, in a single direction."""
        match = _NETWORK.fullmatch(self.network)
        assert match is not None, "validated"
        return float(match["latency"]) * (1e-6 if match["part"] == "us" else 1e-3)


class VirtualRunConfig(_VirtualCluster):
    """A run in virtual time: a strategy, a number of workers, a seed."""

    strategy: str = Field(description="How workers and center exchange parameters")
    n_workers: int = Field(ge=1, le=MOST_WORKERS, description="Virtual workers")
    seed: int | None = Field(None, ge=0, description="Of net, data and times; default: the solver's own")
    step_ms: float = Field(gt=0.0, description="Virtual milliseconds of one minibatch")
    result: Path = Field(description="File of the result")


class SimulateConfig(_VirtualCluster):
    """Train with many virtual workers and real gradients: accuracy against the virtual time of a cluster."""

    workers: str = Field(
        "1,2,4,8",
        pattern=r"^\d+(,\d+)*$",
        description="Numbers of workers, with commas",
        json_schema_extra={"allowed": "whole numbers with commas, like 1,4,16"},
    )
    strategy: str = Field(
        "easgd",
        pattern=r"^\w+(,\w+)*$",
        description="Strategies, with commas",
        json_schema_extra={"allowed": "names with commas, like easgd,downpour", "one_of": "strategy or auto"},
    )
    seeds: str = Field(
        "",
        pattern=r"^(\d+(,\d+)*)?$",
        title="Random seeds",
        description="Random seeds, with commas: a run each; default: the solver's own",
        json_schema_extra={**FORM, "allowed": "whole numbers with commas, like 1,2,3"},
    )
    step_ms: float | None = Field(
        None,
        gt=0.0,
        title="Milliseconds of a minibatch",
        description="Virtual milliseconds of one minibatch; default: estimated by its operations",
        json_schema_extra=FORM,
    )
    target: float | None = Field(
        None, description="Value whose time is told; default: one point below what one worker ends at, else the best"
    )
    out: Path = Field(Path("simulation"), description="Folder of results; runs that it has are not made again")
    processes: Literal["auto"] | Annotated[int, Field(ge=1, le=1_024)] = Field(
        "auto",
        description="Runs side by side, a core each; auto: as many as there are cores",
        json_schema_extra={"allowed": "auto, or a whole number from 1 to 1024"},
    )

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """Numbers of workers, ascending."""
        return tuple(sorted({int(count) for count in self.workers.split(",")}))

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """Strategies, each once, in the order given."""
        return tuple(dict.fromkeys(self.strategy.split(",")))

    @property
    def seed_list(self) -> tuple[int | None, ...]:
        """Seeds, each once; None for the solver's own."""
        return tuple(dict.fromkeys(int(seed) for seed in self.seeds.split(","))) if self.seeds else (None,)

    @model_validator(mode="after")
    def _check(self) -> SimulateConfig:
        if not 1 <= self.worker_counts[0] <= self.worker_counts[-1] <= MOST_WORKERS:
            msg = f"workers={self.workers}: each must be 1 to {MOST_WORKERS}"
            raise ValueError(msg)
        if self.strategy_options and len(self.strategy_names) > 1:
            msg = (
                f"strategy_options={self.strategy_options!r} with strategy={self.strategy}: give one strategy with them"
            )
            raise ValueError(msg)
        return self
