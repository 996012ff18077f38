from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Param
from pydantic import Field

from deepspark_ops.config.base import FORM, StageConfig
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.form import config_from_params, form_params, refuse_unknown
from deepspark_ops.operators.provider.airflow_names import ParamValidationError

pytestmark = pytest.mark.airflow

SECTIONS = [
    ("Train", CheckConfig),
    ("Train", TrainConfig),
    ("Ingest", IngestConfig),
    ("Evaluate", EvaluateConfig),
    ("Promote", PromoteConfig),
]


def params() -> dict[str, Param]:
    """Fresh Params: resolving a Param changes the Param."""
    defaults = {"solver": "s.prototxt", "source": "list.txt"}
    return form_params(SECTIONS, defaults, optional=["source"], choices={"strategy": ["easgd", "sync"]})


@cache
def default_values() -> dict[str, Any]:
    return {name: param.value for name, param in params().items()}


def form_values(**changes: Any) -> dict[str, Any]:
    return default_values() | changes


def test_every_form_field_of_every_model_is_there_once_with_its_title_and_description() -> None:
    expected = {
        name: (field.title, f"{field.description} [{name}]")
        for _, model in SECTIONS
        for name, field in model.model_fields.items()
        if (field.json_schema_extra or {}).get("form")  # type: ignore[union-attr]
    }
    shown = {name: (param.schema["title"], param.description) for name, param in params().items()}
    assert shown == expected
    assert all(title for title, _ in expected.values())


def test_basic_parts_come_first_and_airflow_opens_the_first_one_by_itself() -> None:
    parts: dict[str | None, list[str]] = {}
    for name, param in params().items():
        parts.setdefault(param.schema.get("section"), []).append(name)
    assert list(parts) == [
        None,  # what Airflow calls "Run Parameters" and opens
        "Ingest",
        "Promote",
        "Train, expert",
        "Ingest, expert",
        "Evaluate, expert",
        "Promote, expert",
    ]
    assert parts[None] == [
        "solver", "overrides", "weights", "n_workers", "devices", "gpus_per_worker", "strategy", "comm_period",
    ]  # fmt: skip
    assert parts["Evaluate, expert"][:2] == ["split", "saliency"]
    assert params()["saliency"].value == EvaluateConfig.model_fields["saliency"].default == 4
    never_touched = {"transport", "lock", "wire_dtype", "n_servers", "listen_address", "insecure_network", "verify"}
    assert never_touched < set(parts["Train, expert"])


def test_no_regular_expression_is_in_the_form() -> None:
    schemas = {name: set(param.schema) for name, param in params().items()}
    assert not [name for name, keys in schemas.items() if keys & {"pattern", "form", "allowed"}]


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("comm_period", "often", "comm_period='often': must be auto, a whole number, or a schedule like 1@0 10@2000"),
        ("comm_period", "0", "comm_period='0': must be auto, a whole number, or a schedule like 1@0 10@2000"),
        (
            "comm_period",
            "1@5 2@3",
            "comm_period='1@5 2@3': the clocks 5, 3 do not begin at 0 and ascend; a schedule is VALUE@CLOCK, one after"
            " another from @0 on, e.g. '1@0 10@2000'",
        ),
        (
            "moving_rate",
            "fast",
            "moving_rate='fast': must be a number above 0, at most 1, or a schedule like 0.4@0 0.2@2000",
        ),
        ("rate_scale", "some", "rate_scale='some': must be auto, none, or a number above 0"),
        ("threads_per_worker", "many", "threads_per_worker='many': must be auto, or a whole number from 1 to 1024"),
    ],
)
def test_a_text_that_airflow_lets_pass_is_refused_with_one_sentence(name: str, wrong: str, message: str) -> None:
    assert params()[name].resolve(wrong) == wrong
    with pytest.raises(ConfigError) as caught:
        config_from_params(TrainConfig, form_values(**{name: wrong}), Path("/root"), run_dir=Path("/r"))
    assert str(caught.value) == message


def test_a_name_that_airflow_lets_pass_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"^model='../x': must be at most 64 letters, digits, dots"):
        config_from_params(PromoteConfig, form_values(model="../x"), Path("/root"))


def test_a_field_of_words_or_a_path_proposes_the_words_and_takes_any_text() -> None:
    placement = params()["placement"]
    assert placement.schema["examples"] == ["none", "auto", "placement.txt"]
    assert "enum" not in placement.schema
    assert placement.resolve("nets/two_gpus.txt") == "nets/two_gpus.txt"
    with pytest.raises(ParamValidationError):
        params()["placement"].resolve(1)


@pytest.mark.parametrize("name", list(params()))
def test_every_default_passes_airflows_own_check(name: str) -> None:
    params()[name].resolve()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("n_workers", 0),
        ("test_fraction", 1.0),
        ("moving_rate", 0.0),
        ("comm_period", 0),
        ("rate_scale", 0),
        ("source_format", "photo_album"),
        ("encoded", "yes"),
        ("split", "half"),
        ("strategy", "eagsd"),
        ("solver", None),
    ],
)
def test_airflow_refuses_a_wrong_value(name: str, wrong: Any) -> None:
    with pytest.raises(ParamValidationError):
        params()[name].resolve(wrong)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("comm_period", 5),
        ("comm_period", "5"),
        ("comm_period", "1@0 10@2000"),
        ("moving_rate", 0.3),
        ("moving_rate", "0.3"),
        ("moving_rate", "0.4@0 0.2@2000"),
        ("rate_scale", 1.5),
        ("rate_scale", "none"),
        ("moving_rate", None),
        ("source", None),
        ("overrides", None),
        ("weights", "w.caffemodel"),
        ("weights", "a.caffemodel,b.caffemodel"),
    ],
)
def test_airflow_takes_every_form_of_a_right_value(name: str, right: Any) -> None:
    assert params()[name].resolve(right) == right


def test_configs_come_back_with_absolute_paths_and_without_empty_fields() -> None:
    params = form_values(overrides=None, weights=" ", comm_period="5", n_workers=3)
    config = config_from_params(TrainConfig, params, Path("/root"), run_dir=Path("/runs/1"), dataset=None)
    assert config == TrainConfig(
        solver=Path("/root/s.prototxt"), run_dir=Path("/runs/1"), comm_period=5, n_workers=3, overrides=""
    )


def test_weights_are_one_file_or_a_list_with_commas() -> None:
    def weights(text: str) -> tuple[Path, ...] | None:
        return config_from_params(TrainConfig, form_values(weights=text), Path("/root"), run_dir=Path("/r")).weights

    assert weights("w.caffemodel") == (Path("/root/w.caffemodel"),)
    assert weights("a.caffemodel, /b.caffemodel") == (Path("/root/a.caffemodel"), Path("/b.caffemodel"))
    with pytest.raises(ConfigError, match=r"^weights=',': names no file; give one, or several with commas"):
        weights(",")


def test_form_and_model_agree_on_every_default() -> None:
    config = config_from_params(IngestConfig, form_values(), Path("/root"), output=Path("/out"))
    assert config == IngestConfig(source=Path("/root/list.txt"), output=Path("/out"))


@pytest.mark.parametrize(
    ("source", "root_folder"), [("list.txt", Path("/root/img")), ("a.tar.gz::list.txt", Path("img"))]
)
def test_a_folder_of_an_archive_is_no_path_of_this_machine(source: str, root_folder: Path) -> None:
    form = form_values() | {"source": source, "root_folder": "img"}
    config = config_from_params(IngestConfig, form, Path("/root"), output=Path("/out"))
    assert (config.source, config.root_folder) == (Path("/root", source), root_folder)


def test_wrong_value_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^n_workers=0: "):
        config_from_params(TrainConfig, form_values(n_workers=0), Path("/root"), run_dir=Path("/r"))
    with pytest.raises(ConfigError, match=r"comm_period='1\.5': "):
        config_from_params(TrainConfig, form_values(comm_period="1.5"), Path("/root"), run_dir=Path("/r"))


def test_unknown_parameter_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_unknown({"n_worker": 3, "zzz": 1}, ["n_workers", "solver"])
    assert str(caught.value) == (
        'conf has an unknown parameter "n_worker"; did you mean "n_workers"?\n'
        'conf has an unknown parameter "zzz"\n'
        "allowed: n_workers, solver"
    )
    refuse_unknown(None, ["solver"])
    refuse_unknown({"solver": "x"}, ["solver"])


class _Other(StageConfig):
    n_workers: int = Field(5, title="Workers", description="Something else", json_schema_extra=FORM)


class _Needs(StageConfig):
    thing: str = Field(title="Thing", description="A thing", json_schema_extra=FORM)


def test_form_refuses_what_would_surprise_its_reader() -> None:
    with pytest.raises(ValueError, match="n_workers: _Other and an earlier section declare it differently"):
        form_params([("A", TrainConfig), ("B", _Other)], {"solver": "x"})
    with pytest.raises(ValueError, match="in no section of the form: nothing"):
        form_params([("A", _Needs)], {"thing": "x", "nothing": 1})
    assert isinstance(form_params([("A", _Needs)], {"thing": "x"})["thing"], Param)


def test_a_field_without_a_default_starts_empty_and_is_then_missing_by_name(tmp_path: Path) -> None:
    param = form_params([("A", _Needs)])["thing"]
    optional = form_params([("A", _Needs)], optional=["thing"])["thing"]
    assert (param.value, param.schema["type"]) == ("", "string")  # the form takes the field for a required value
    assert (optional.value, optional.schema["type"]) == (None, ["string", "null"])
    for value in (param.resolve(), optional.resolve()):
        with pytest.raises(ConfigError, match=r"^thing: must be given: A thing$"):
            config_from_params(_Needs, {"thing": value}, tmp_path)
