"""Output of the command: results on stdout, an error as a message on stderr with an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.processes.job_log import FAILED, USER_MISTAKE, StageFailed
from deepspark_ops.processes.stage_process import user_trouble
from deepspark_ops.troubleshooting import explained

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print an expected error as a single message on stderr, without a traceback, and exit.

    Raises:
        typer.Exit: 2 for a mistake of the user, 1 for a stage that may succeed another time, 130 after Ctrl-C.
    """
    try:
        yield
    except (DeepSparkError, CaffeImportError) as error:
        _print_error(str(error))
        is_mistake = not isinstance(error, StageFailed) or error.is_user_mistake
        raise typer.Exit(USER_MISTAKE if is_mistake else FAILED) from None
    except (OSError, ModuleNotFoundError) as error:
        if (trouble := user_trouble(error)) is None:
            raise
        _print_error(trouble[1])
        raise typer.Exit(trouble[0]) from None
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def _print_error(message: str) -> None:
    Console(stderr=True).print(f"[red]error:[/red] {escape(explained(message))}", highlight=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print a result to stdout unchanged."""
    Console().print(escape(text), highlight=False, soft_wrap=True)


def print_view(view: RenderableType) -> None:
    """Print a table or another view to stdout; a file or a pipe gets the width of a log."""
    from deepspark_ops.preflight.table import LOG_WIDTH  # loads the readers of data

    Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(view, highlight=False)


def write_json(value: Mapping[str, Any]) -> None:
    """Write a result to stdout as JSON."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")
