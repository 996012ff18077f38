"""The command ``deepspark`` in this process."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from deepspark_ops.command import cli


def invoke(*arguments: object) -> Result:
    """Return the command's end and its output."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
