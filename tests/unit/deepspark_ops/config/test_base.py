"""Messages of refused options are sentences, never regular expressions."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops import config
from deepspark_ops.config.base import StageConfig, parse_config, with_paths_from
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError

NAMES = [module.name for module in pkgutil.walk_packages(config.__path__, f"{config.__name__}.")]
MODULES = [importlib.import_module(name) for name in NAMES]
MODELS = sorted(
    {
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, StageConfig)
    },
    key=lambda model: model.__name__,
)


def with_pattern(model: type[StageConfig]) -> dict[str, dict[str, Any]]:
    properties = model.model_json_schema(by_alias=False).get("properties", {})
    return {name: schema for name, schema in properties.items() if '"pattern"' in json.dumps(schema)}


def test_every_option_with_a_pattern_says_in_words_what_it_takes() -> None:
    schemas = {f"{model.__name__}.{name}": schema for model in MODELS for name, schema in with_pattern(model).items()}
    assert {"ConvertConfig.mean_values", "PromoteConfig.model", "PlanConfig.workers"} <= set(schemas)
    assert [name for name, schema in schemas.items() if not schema.get("allowed")] == []


@pytest.mark.parametrize(
    ("model", "name"), [(model, name) for model in MODELS for name in with_pattern(model)], ids=lambda part: str(part)
)
def test_a_text_that_a_pattern_refuses_is_answered_with_its_sentence(model: type[StageConfig], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(model, {name: "/?"})
    (line,) = [line for line in str(caught.value).splitlines() if line.startswith(f"{name}=")]
    assert line == f"{name}='/?': must be {with_pattern(model)[name]['allowed']}"
    assert "pattern" not in line


@pytest.mark.parametrize(("text", "means"), [("", ()), ("104", (104.0,)), ("104, 117.5,123", (104.0, 117.5, 123.0))])
def test_mean_values_are_numbers_with_commas(text: str, means: tuple[float, ...]) -> None:
    paths = {"net": Path("n"), "weights": Path("w"), "output": Path("o")}
    assert parse_config(ConvertConfig, {**paths, "mean_values": text}).channel_means == means


def test_the_traceback_of_a_wrong_value_is_of_our_error_alone() -> None:
    with pytest.raises(ConfigError, match=r"^n_workers=0: must be a whole number") as refusal:
        parse_config(TrainConfig, {"solver": "s.prototxt", "run_dir": "r", "n_workers": 0})
    assert "ValidationError" not in "".join(traceback.format_exception(refusal.value))
    with pytest.raises(ConfigError) as refusal:
        parse_config(TrainConfig, {"solver": ["row\n"] * 10_000, "run_dir": "r"})
    assert re.match(r"solver=\['row.n', .{280,300}\.\.\.: ", str(refusal.value))
    assert len(str(refusal.value)) < 500


def test_local_paths_are_absolute_by_a_home_or_a_file_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/us")
    values = {"solver": "~/s.prototxt", "weights": "~/a.caffemodel,b", "dataset": "file:///data/x", "run_dir": "~"}
    parsed = with_paths_from(parse_config(TrainConfig, values), Path("/work"))
    assert (parsed.solver, parsed.run_dir) == (Path("/home/us/s.prototxt"), Path("/home/us"))
    assert (parsed.weights, parsed.dataset) == ((Path("/home/us/a.caffemodel"), Path("/work/b")), Path("/data/x"))
    assert parse_config(TrainConfig, {**values, "solver": Path("file:///s")}).solver == Path("/s")
    assert parse_config(TrainConfig, {**values, "dataset": "~/x"}).dataset == Path("/home/us/x")
    with pytest.raises(ConfigError, match=r"^solver='s3://b/s.prototxt': is in an object store; allowed: a file or"):
        parse_config(TrainConfig, {**values, "solver": "s3://b/s.prototxt"})
    for name in ("solver", "dataset"):
        with pytest.raises(ConfigError, match=rf"^{name}='caf.udce9': is a name that is no UTF-8 text; rename"):
            parse_config(TrainConfig, {**values, name: b"caf\xe9".decode("utf-8", "surrogateescape")})


def test_min_workers_is_at_most_n_workers() -> None:
    needed = {"solver": "solver.prototxt", "run_dir": "run"}
    with pytest.raises(ConfigError, match=r"min_workers=3 and n_workers=2: .* give min_workers from 1 to 2$"):
        parse_config(TrainConfig, {**needed, "n_workers": 2, "min_workers": 3})
    assert parse_config(TrainConfig, {**needed, "n_workers": 3, "min_workers": 3}).min_workers == 3
