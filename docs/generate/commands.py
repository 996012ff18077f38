"""The page of commands: what ``deepspark --help`` and ``make help`` say, in one place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from deepspark_ops.command import cli

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
_HEAD = """<!-- Written by docs/generate/commands.py (make format); do not edit. -->
# Commands

Each `deepspark` command has `--help` with the text below. [Exit codes](exit_codes.md) lists how a command ends.
The options of a stage are also the arguments of its [operator](operators.md), of its
[Python function](python.md), and the fields of the form in Airflow.
"""


def page() -> str:
    """Return the page: a table of all commands, the options of each, and the targets of make."""
    commands = list(_commands(typer.main.get_command(cli.app), "deepspark"))
    rows = "".join(f"| [`{path}`](#{_anchor(path)}) | {_cell(_summary(command))} |\n" for path, command in commands)
    parts = [_HEAD, f"## All commands\n\n| command | effect |\n| --- | --- |\n{rows}"]
    parts += [_section(path, command) for path, command in commands]
    return "\n".join([*parts, _targets()])


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, part in command.commands.items():
        yield from _commands(part, f"{path} {name}")


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _summary(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _section(path: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([path, *(f"{argument.metavar or argument.name.upper()}" for argument in arguments)])
    paragraphs = [_paragraph(text) for text in (command.help or "").split("\n\n") if text.strip()]
    rows = [
        *(f"| `{argument.metavar or argument.name.upper()}` | {_help(argument)} |\n" for argument in arguments),
        *(f"| {_names(option)} | {_help(option)} |\n" for option in options),
    ]
    table = "| option | meaning |\n| --- | --- |\n" + "".join(rows) if rows else ""
    return f"## {path}\n\n    {usage}\n\n" + _cell("\n\n".join(paragraphs)) + "\n\n" + table


def _paragraph(text: str) -> str:
    """Return a paragraph in a line, or as a list if typer keeps its lines."""
    if text.startswith("\b\n"):
        return re.sub(r"^(\w+):", r"- `\1`:", text.removeprefix("\b\n"), flags=re.MULTILINE)
    return " ".join(text.split())


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    metavar = f" `{_cell(option.metavar)}`" if option.metavar else ""
    return f"{names}{metavar}{' (needed)' if option.required else ''}"


def _help(parameter: Any) -> str:
    return _cell(re.sub(r"\\(?=\[)", "", parameter.help or ""))


def _cell(text: str) -> str:
    """Return text for a table's cell, with Markdown's signs escaped."""
    return re.sub(r"(?<!\\)([|$*<])", r"\\\1", text.replace("\b", ""))


def _targets() -> str:
    found = re.findall(r"^([a-z][a-z-]*):.*## (.*)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = "".join(f"| `make {target}` | {_cell(text)} |\n" for target, text in found)
    return "## Targets of make\n\nA clone has these targets.\n\n| target | effect |\n| --- | --- |\n" + rows
