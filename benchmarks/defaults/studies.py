"""The nets, the studies, and the runs of a study as cells.

table          the perceptron on the table of examples/table_mlp
lenet          LeNet on the digits of examples/digits
cifar10_quick  cifar10_quick on CIFAR-10 (examples/cifar10/README.md)
cifar10_short  the same with three tenths of the minibatches, for studies of many runs
autoencoder, autoencoder_sgd, lstm, siamese  nets of other kinds for the study ``kinds``, on digits of 8x8 pixels
residual8, residual8_adam  residual nets of 8 layers on CIFAR-10, for the study ``kinds``
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.train.worker.rates import rate_scale

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)
ASYNCHRONOUS = ("easgd", "downpour", "staleness", "softsync", "dcasgd", "async_diloco")
IN_ROUNDS = ("sync", "local_sgd", "diloco")
TESTS = 20
"""Tests in a run."""

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Net:
    """A net to train.

    Attributes:
        title: Name in the tables.
        solver: File of the solver.
        minibatches: Length of a run.
        overrides: Solver fields of a run, without the length.
        target: Accuracy for the times; None: one worker's accuracy less two points.
        studies: Studies with this net; empty: all.
        data: Name of the dataset; empty: the net reads other files.
        longer: Number of workers -> minibatches and solver fields of a run that reaches the target.
    """

    title: str
    solver: str
    minibatches: int
    overrides: str = ""
    target: float | None = None
    studies: tuple[str, ...] = ()
    data: str = "cifar10"
    longer: Mapping[int, tuple[int, str]] = field(default_factory=dict)


AUTOENCODER = "examples/autoencoder/autoencoder_solver.prototxt"
LSTM = "benchmarks/nets/lstm_digits_solver.prototxt"
RESIDUAL = "benchmarks/nets/residual8_solver.prototxt"
KINDS = ("kinds", "warm_up", "share", "limit", "overlap")
NETS = {
    "table": Net("perceptron, table", "examples/table_mlp/mlp_solver.prototxt", 2_000, data="risk"),
    "lenet": Net("LeNet, digits", "examples/digits/lenet_solver.prototxt", 600, data="digits"),
    "cifar10_quick": Net(
        "cifar10_quick, CIFAR-10",
        "examples/cifar10/solver.prototxt",
        5_000,
        target=0.73,
        longer={8: (6_000, "stepvalue: 4800"), 16: (7_200, "stepvalue: 6400")},
    ),
    "cifar10_short": Net(
        "cifar10_quick, CIFAR-10, 1,500 minibatches",
        "examples/cifar10/solver.prototxt",
        1_500,
        "stepvalue: 1200",
        studies=("moving_rate", "tau", "rate", "momentum"),
    ),
    "autoencoder": Net("autoencoder, Adam, loss", AUTOENCODER, 2_000, studies=KINDS, data="digits8"),
    "autoencoder_sgd": Net(
        "autoencoder, SGD, loss", AUTOENCODER, 2_000, 'type: "SGD" base_lr: 0.05', studies=KINDS, data="digits8"
    ),
    "lstm": Net(
        "LSTM, rows of digits", "benchmarks/nets/lstm_digits_solver.prototxt", 1_000, studies=KINDS, data="digits8"
    ),
    "siamese": Net("siamese pairs, loss", "examples/siamese/siamese_solver.prototxt", 1_500, studies=KINDS, data=""),
    "residual8": Net("residual net of 8 layers", RESIDUAL, 1_000, studies=KINDS),
    "residual8_adam": Net("the same, Adam", RESIDUAL, 1_000, 'type: "Adam" base_lr: 0.001', studies=KINDS),
}


@dataclass(frozen=True)
class Study:
    """A question, and the options that answer the question.

    Attributes:
        title: The question.
        workers: Numbers of workers.
        variants: Column of the table -> options of the column's runs, by the number of workers.
        base: Row of the table -> options of the row's runs.
        is_longer: Whether runs with several workers have the lengths of ``Net.longer``.
    """

    title: str
    workers: Sequence[int]
    variants: Mapping[str, Callable[[int], Fields]]
    base: Mapping[str, Fields] = field(default_factory=lambda: {"": {}})
    is_longer: bool = False


def same(**fields: Any) -> Callable[[int], Fields]:
    """Return options for any number of workers."""
    return lambda _n_workers: fields


_TAUS: Mapping[str, Fields] = {f"tau {tau}": {"comm_period": tau} for tau in (1, 10)}
STUDIES = {
    "moving_rate": Study(
        "Moving rate of `easgd`",
        (4, 8, 16, 32),
        {
            "0.9/p": lambda p: {"moving_rate": min(0.45, 0.9 / p)},
            "0.3": same(moving_rate=0.3),
            "2.4/p": lambda p: {"moving_rate": min(0.3, 2.4 / p)},
            "0.45": same(moving_rate=0.45),
        },
        _TAUS,
    ),
    "tau": Study(
        "Minibatches between the exchanges of `easgd`",
        (4, 8),
        {f"tau {tau}": same(comm_period=tau) for tau in (1, 2, 4, 10)},
    ),
    "rate": Study(
        "Largest factor on the solver's rate",
        (4, 8),
        {f"at most {cap}": same(cap=float(cap)) for cap in (1, 2, 4, 6, 8)},
        {
            "easgd, tau 1": {"comm_period": 1},
            "sync": {"strategy": "sync"},
            **{f"downpour, tau {tau}": {"strategy": "downpour", "comm_period": tau} for tau in (3, 10)},
        },
    ),
    "momentum": Study(
        "Momentum of `downpour` on cifar10_quick, the rate raised so that a step comes to the same",
        (4,),
        {f"{m}": same(overrides=f"momentum: {m} base_lr: {0.01 * (1 - m):.3g}") for m in (0.9, 0.6)},
        {f"tau {tau}": {"strategy": "downpour", "comm_period": tau} for tau in (1, 3, 10)},
    ),
    "diloco": Study(
        "Outer rate and momentum of `diloco` and `async_diloco`",
        (4, 8),
        {
            f"{rate}, {momentum}": same(strategy_options=f"outer_rate: {rate} outer_momentum: {momentum}")
            for rate, momentum in ((0.7, 0.9), (0.7, 0.6), (0.7, 0.3), (0.7, 0.2), (0.4, 0.6), (0.7, 0.0))
        },
        {name: {"strategy": name, "comm_period": 10} for name in ("diloco", "async_diloco")},
    ),
    "strategies": Study(
        "Every strategy at its defaults",
        (2, 4, 8, 16, 32),
        {name: same(strategy=name) for name in ASYNCHRONOUS + IN_ROUNDS},
    ),
    "stragglers": Study(
        "One worker in eight three times slower",
        (8, 16),
        {name: same(strategy=name, stragglers=0.125) for name in ASYNCHRONOUS + IN_ROUNDS},
    ),
    "kinds": Study(
        "Nets of other kinds",
        (4, 8),
        {name: same(strategy=name) for name in ("easgd", "sync")},
    ),
    "warm_up": Study(
        "Warm-up of `easgd` for factors above 4, updates of each worker for each unit of the factor",
        (4, 8),
        {
            "12.5": same(constants={"UPDATES_PER_FACTOR": 12.5}),
            "the default": same(),
            "50": same(constants={"UPDATES_PER_FACTOR": 50}),
            "as for smaller factors": same(constants={"LONG_WARMUP_ABOVE": float("inf")}),
        },
    ),
    "share": Study(
        "Share of momentum from the center",
        (4, 8),
        {
            "0.25": same(strategy_options="momentum_from_center: 0.25"),
            "the default": same(),
            "1": same(strategy_options="momentum_from_center: 1"),
        },
    ),
    "limit": Study(
        "Largest factor on the rate of `easgd`",
        (16, 32),
        {**{f"at most {cap:g}": same(cap=cap) for cap in (6.5, 13.0, 26.0)}, "the default": same()},
    ),
    "overlap": Study(
        "Exchanges of `easgd` that overlap the steps",
        (2, 4, 8),
        {
            "without overlap": same(),
            "with overlap": same(overlap=True),
            "half the factor": lambda p: {"overlap": True, "cap": 0.5 * find_strategy("easgd").rate_factor(p)},
            "a quarter": lambda p: {"overlap": True, "cap": 0.25 * find_strategy("easgd").rate_factor(p)},
        },
        {f"tau {tau}": {"comm_period": tau} for tau in (1, 2, 4)},
    ),
    "longer": Study(
        "Runs that are long enough for the target",
        (8, 16),
        {name: same(strategy=name) for name in ASYNCHRONOUS + IN_ROUNDS},
        {"equal workers": {}, "one in eight three times slower": {"stragglers": 0.125}},
        is_longer=True,
    ),
}


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        net: Key of NETS.
        study: Key of STUDIES.
        row: Key of the study's ``base``.
        variant: Column.
        workers: Number of workers.
        seed: Seed of net, data and times.
        minibatches: Clock at the end.
        options: Options of the run; ``cap`` bounds the strategy's ``rate_factor``, ``constants`` are ``rate_scale``'s.
    """

    net: str
    study: str
    row: str
    variant: str
    workers: int
    seed: int
    minibatches: int
    options: Fields


def config_of(cell: Cell) -> VirtualRunConfig:
    """Return a run's config without dataset and result file; call this function under ``capped``."""
    net = NETS[cell.net]
    every = max(1, cell.minibatches // TESTS)
    length = f"max_iter: {cell.minibatches} test_interval: {every} test_initialization: false"
    fields = {
        "strategy": "easgd",
        **{name: value for name, value in cell.options.items() if name not in ("cap", "constants")},
        "solver": ROOT / net.solver,
        "overrides": " ".join(filter(None, (length, net.overrides, cell.options.get("overrides")))),
        "n_workers": cell.workers,
        "seed": cell.seed,
        "step_ms": 50.0,
        "network": "10gbit,200us",
        "result": Path(),
    }
    return parse_config(VirtualRunConfig, fields)


@contextmanager
def capped(options: Fields) -> Iterator[None]:
    """Apply a cell's ``cap`` and ``constants`` within the block."""
    with ExitStack() as patches:
        if "cap" in options:
            kind = type(find_strategy(options.get("strategy", "easgd")))
            patches.enter_context(
                mock.patch.object(
                    kind, "rate_factor", lambda strategy, p: min(options["cap"], 1 / strategy.progress_per_step(p))
                )
            )
        for name, value in options.get("constants", {}).items():
            patches.enter_context(mock.patch.object(rate_scale, name, value))
        yield


def cells_of(study: str, nets: Sequence[str], seeds: Sequence[int], workers: Sequence[int]) -> Iterator[Cell]:
    """Yield the runs of a study, net by net: first one worker, then ascending numbers of workers."""
    definition = STUDIES[study]
    for net in nets:
        length = NETS[net].minibatches
        if (NETS[net].studies and study not in NETS[net].studies) or (definition.is_longer and not NETS[net].longer):
            continue
        for seed in seeds:
            yield Cell(net, study, "", "", 1, seed, length, {"strategy": "easgd"})
        for p in definition.workers:
            if workers and p not in workers:
                continue
            length, fields = NETS[net].longer[p] if definition.is_longer else (NETS[net].minibatches, "")
            length_options = {"overrides": fields} if fields else {}
            for seed in seeds:
                for row, base in definition.base.items():
                    for variant, of in definition.variants.items():
                        yield Cell(net, study, row, variant, p, seed, length, {**base, **of(p), **length_options})
