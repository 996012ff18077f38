"""Every option with a fixed list of words shows the list in its help and in the error for another word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.main import get_command

from deepspark_ops.command.cli import app
from deepspark_ops.command.options import _metavar
from deepspark_ops.config.base import StageConfig, parse_config
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.flat_fields import plain_members
from deepspark_ops.config.shared_options.bundle_formats import BUNDLE_FORMATS
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.exchange.strategies.choice import strategy_choices
from deepspark_ops.simulation.simulate import check_strategies
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from tests.reference.command_line import invoke

FREE_TEXT = frozenset(
    # What a file or a table holds, or a person writes.
    "overrides split-column image-column label-column feature-columns id-column weight-column group-column"
    " input-columns query name tags output-blob target-blob blobs slices reason python-layers allowed-root"
    " strategy-options packages"
    # Numbers and forms, which a pattern describes.
    " workers seeds solvers base-lr sample-shape mean-values comm-period moving-rate network solver-fields stop-below"
    # Addresses.
    " master listen-address connection host host-names".split()
)
"""Options that take any text of a form; all others that take text take one of some words."""
WORDS = {
    ("plan", "strategy"): strategy_names(),
    ("train", "strategy"): strategy_choices(),
    ("compare", "strategy"): strategy_choices(),
    ("simulate", "strategy"): strategy_choices(),
    ("pack", "extras"): ("train", "gpu", "tables"),
    ("export", "formats"): BUNDLE_FORMATS,
    ("convert", "formats"): BUNDLE_FORMATS,
    ("data sample", "split"): ("train", "validation", "test"),  # the error lists the splits of the dataset
    ("model mean", "split"): ("train", "validation", "test"),  # likewise
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, member in command.commands.items():
        yield from commands(member, (*path, name))


def options() -> Iterator[tuple[str, str, Any]]:
    """Yield command, name without dashes, and the option, of all commands."""
    for name, command in commands(get_command(app)):
        for parameter in command.params:
            if parameter.opts[0].startswith("--"):
                yield name, parameter.opts[0].removeprefix("--"), parameter


def takes_text(option: Any) -> bool:
    if option.metavar is not None:
        return "TEXT" in option.metavar.split("|")
    kind = getattr(option, "type_descriptor", None)  # typer before 0.20 has click's type alone
    return kind.annotation is str if kind is not None else option.type.name == "text"


def test_every_option_that_takes_text_is_free_or_lists_its_words() -> None:
    texts = {(command, name): option for command, name, option in options() if takes_text(option)}
    assert {key for key in texts if key[1] not in FREE_TEXT} == set(WORDS)
    assert FREE_TEXT <= {name for _, name in texts}
    for key, words in WORDS.items():
        missing = [word for word in words if word not in (texts[key].help or "")]
        assert not missing, f"{key}: its help leaves out {missing}"


def stage_models(model: type[StageConfig] = StageConfig) -> Iterator[type[StageConfig]]:
    for derived in model.__subclasses__():
        yield derived
        yield from stage_models(derived)


def literal_fields() -> Iterator[Any]:
    """Yield model, field and words of each field of a config model with a fixed list of words."""
    for model in stage_models():
        for name, info in model.model_fields.items():
            words = [
                str(word)
                for plain in plain_members(info.annotation)
                if get_origin(plain) is Literal
                for word in get_args(plain)
            ]
            if words and model.__module__.startswith("deepspark_ops."):
                yield pytest.param(model, name, words, id=f"{model.__name__}-{name}")


LITERALS = list(literal_fields())


@pytest.mark.parametrize(("model", "field", "words"), LITERALS)
def test_the_error_for_a_word_that_is_none_lists_the_words(
    model: type[StageConfig], field: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(model, {field: "nonsense"})
    lines = [line for line in str(refused.value).splitlines() if line.startswith(f"{field}='nonsense'")]
    takes_a_path = len(lines) == 0  # a word or a file: any other text is a file
    assert takes_a_path or not [word for word in words if word not in lines[0]], lines


@pytest.mark.parametrize(("model", "field", "words"), LITERALS)
def test_the_metavar_of_an_option_lists_its_words(model: type[StageConfig], field: str, words: list[str]) -> None:
    assert set(words) <= set(_metavar(model.model_fields[field]).split("|"))


def test_the_error_for_a_wrong_strategy_lists_all_that_the_option_takes() -> None:
    with pytest.raises(ConfigError, match=rf"known: {', '.join(strategy_choices())}$"):
        plan_strategy(parse_config(TrainConfig, {"solver": "s", "run_dir": "r", "strategy": "foo"}))
    with pytest.raises(ConfigError, match=rf"known: {', '.join(strategy_choices())}$"):
        check_strategies(parse_config(SimulateConfig, {"solver": "s", "strategy": "sync,foo"}))
    with pytest.raises(ConfigError, match='did you mean "auto"'):
        plan_strategy(parse_config(TrainConfig, {"solver": "s", "run_dir": "r", "strategy": "aut"}))


def test_the_error_for_a_wrong_format_lists_all() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(ExportConfig, {"run_dir": "r", "formats": "saved_model,foo"})
    assert all(name in str(refused.value) for name in BUNDLE_FORMATS)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["train", "-solver", "s.prototxt"], "-solver is no option: write deepspark train SOLVER"),
        (["evaluate", "--run-dir=runs/a"], "--run-dir is no option: write deepspark evaluate RUN_DIR"),
        (["convert", "net", "--weights", "w"], "--weights is no option: write deepspark convert NET WEIGHTS"),
        (["time", "-model", "net.prototxt"], "-model is no option: write deepspark time NET"),
        (["train", "s", "-weights", "w"], "-weights is no option: write --weights"),
        (["train", "s", "--snapshot=s.solverstate"], "--snapshot is no option: write --resume"),
        (
            ["train", "s", "--learning-rate", "0.1"],
            "--learning-rate is no option: learning_rate is a field of the solver, base_lr: write --overrides"
            ' "base_lr: VALUE"',
        ),
        (["train", "s", "-gpu", "0"], "-gpu is no option: write --devices"),
        (["test", "-weights", "w", "-model", "n"], "-weights is no option: write --weights"),
        (["test", "-weights", "w", "-model", "n"], "-model is no option: write deepspark test NET"),
        (["device_query", "-gpu", "0"], "device_query is Caffe's: write deepspark doctor"),
        (
            ["compute_image_mean", "a", "b"],
            "compute_image_mean is Caffe's: write deepspark model mean DB --output FILE",
        ),
        (["convert_imageset.bin"], "convert_imageset is Caffe's: write deepspark ingest SOURCE --output D"),
    ],
)
def test_a_flag_of_caffe_is_shown_as_it_is_written_here(arguments, finding, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert finding in result.stderr
