"""The command ``deepspark`` in this process."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import Result
from typer.testing import CliRunner

from deepspark_ops.command import cli
from deepspark_ops.config.base import StageConfig


def invoke(*arguments: object) -> Result:
    """Return the command's end and its output."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run_stage_here(module: str, config: StageConfig, **_: object) -> None:
    """Run a stage's main in this process, instead of ``run_job``: a stage's process loads TensorFlow in three seconds.

    For tests that say nothing about the stage's process.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(config.model_dump_json())
        import_module(f"{module}.__main__").main(path)
