"""The page of messages, from the list that commands and tasks print remedies of."""

from __future__ import annotations

from deepspark_ops.troubleshooting import message_rows

_HEAD = """<!-- Written by docs/generate/troubleshooting.py (make format); edit deepspark_ops/troubleshooting.toml. -->
# Troubleshooting

A message names the place, the value and the allowed values. Search this page for a part of the message. In the first
column … stands for a value of your run. The argument `run_dir` of a message is the option `--run-dir` of a command.
Commands and tasks of Airflow print cause and remedy below a message that names no remedy.
[Exit codes](reference/exit_codes.md) says how a command ends.

`deepspark doctor` examines this host, a cluster (`--master`) and Airflow (`--connection spark_default`), and prints a
remedy for each finding.
"""


def page() -> str:
    """Return the page: a table for each stage."""
    return _HEAD + "".join(
        f"\n## {stage}\n\n| message | cause | remedy |\n| --- | --- | --- |\n"
        + "".join(f"| `{part}` | {cause} | {remedy} |\n" for part, (cause, remedy) in rows.items())
        for stage, rows in message_rows().items()
    )
