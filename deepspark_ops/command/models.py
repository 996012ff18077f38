"""``deepspark models``: show models in production, promote, roll back.

The registry is imported when a command runs: it loads the evaluation.
"""

from __future__ import annotations

import getpass
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deepspark_ops.api.display.stage_display import StageDisplay, show_telling
from deepspark_ops.command.options import with_options
from deepspark_ops.command.reporting import print_text, print_view, reported_errors, write_json
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.evaluate import ScoreBundleConfig
from deepspark_ops.config.promote import HandPromoteConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.tracking.tell import tell_model

models = typer.Typer(help="Models in production: versions, history, promotion and rollback.", no_args_is_help=True)

_Models = Annotated[Path, typer.Option("--models", metavar="FOLDER", help="Folder of models in production")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The model's name", show_default=False)]
_DEFAULT = Path("models")


@models.command("list")
@reported_errors()
def list_models(folder: _Models = _DEFAULT, *, as_json: _Json = False) -> None:
    """Show each model with its version in production."""
    from deepspark_ops.command.models_view import models_table
    from deepspark_ops.registry.overview import OVERVIEW_VERSION, model_names, read_model

    overviews = [read_model(folder, name) for name in model_names(folder)]
    if as_json:
        listed = [model.model_dump(mode="json", exclude={"history"}) for model in overviews]
        write_json({"format_version": OVERVIEW_VERSION, "models": listed})
        return
    if not overviews:
        print_text(f"no models in {folder}")
        return
    print_view(models_table(overviews))


@models.command("show")
@reported_errors()
def show(name: _Name, folder: _Models = _DEFAULT, *, as_json: _Json = False) -> None:
    """Show a model's versions, where each comes from, and who changed what, when and why."""
    from deepspark_ops.command.models_view import headline, history_table, lineage, version_table
    from deepspark_ops.registry.overview import read_model

    model = read_model(folder, name)
    if as_json:
        write_json(model.model_dump(mode="json"))
        return
    print_text(headline(model))
    print_view(version_table(model))
    print_view(history_table(model))
    if (record := model.of_production()) is not None:
        print_text(lineage(record))


def _promote(config: HandPromoteConfig, *, force: bool, json: bool) -> None:
    """Put a bundle, or the bundle of a run, into production if the bundle is better than the present model."""
    from deepspark_ops.registry.candidate import promote_by_hand

    promotion = promote_by_hand(config, _user(), _score, force=force)
    production = promotion.production
    if production is None:
        msg = f"{promotion.decision.reason}. To promote it all the same, give --force"
        raise ConfigError(msg)
    show_telling(tell_model, config.models / config.model)
    if json:
        write_json(production.model_dump(mode="json"))
    else:
        print_text(f"{promotion.decision.reason}\nmodel={config.model} version={production.version}")


_FLAGS = {"force": "Do not compare; the reason is kept in the model's history", "json": "Print JSON"}
models.command("promote")(
    reported_errors()(with_options(_promote, HandPromoteConfig, positional=("model", "bundle"), flags=_FLAGS))
)


@models.command("rollback")
@reported_errors()
def rollback(
    name: _Name,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the model's history")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="v6 or 6; default: the previous version")
    ] = None,
    folder: _Models = _DEFAULT,
    *,
    as_json: _Json = False,
) -> None:
    """Put an earlier version back into production; the next retraining starts from it."""
    from deepspark_ops.registry.changes import Author, roll_back
    from deepspark_ops.registry.model_folder import ModelFolder

    production = roll_back(ModelFolder(folder / name), Author(_user(), reason), to=to)
    show_telling(tell_model, (folder / name).absolute())
    if as_json:
        write_json(production.model_dump(mode="json"))
    else:
        print_text(f"model={name} version={production.version} was={production.previous or 'none'}")


@models.command("verify")
@reported_errors()
def verify(name: _Name, folder: _Models = _DEFAULT, *, as_json: _Json = False) -> None:
    """Compare every file of every version with its digest; exit code 2 names the first damage."""
    from deepspark_ops.registry.integrity import verify_model
    from deepspark_ops.registry.model_folder import ModelFolder

    versions = verify_model(ModelFolder(folder / name))
    if as_json:
        write_json({"model": name, "versions": [asdict(version) for version in versions]})
        return
    n_files, n_bytes = sum(version.n_files for version in versions), sum(version.n_bytes for version in versions)
    print_text(f"model={name}: {len(versions)} versions, {n_files:,} files, {n_bytes:,} bytes, all unchanged")


def _score(run_dir: Path, bundle: Path, output: Path) -> None:
    config = parse_config(ScoreBundleConfig, {"run_dir": run_dir, "bundle": bundle, "output": output})
    with StageDisplay("evaluate") as display:
        run_job("deepspark_ops.export.scores", config, on_line=display.line)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
