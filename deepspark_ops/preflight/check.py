"""The whole stage: the report, the comparison with Caffe and the picture, as the config asks for them."""

from __future__ import annotations

from deepspark_ops.config import CheckConfig
from deepspark_ops.preflight.certificate import certified
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.net_picture import write_picture
from deepspark_ops.preflight.report import PreflightReport


def run_check(config: CheckConfig) -> PreflightReport:
    """Return the report; write the picture.

    Raises:
        CaffeImportError: The solver or a net's file cannot be read.
        ConfigError: The picture cannot be written, or there are no recorded cases.
        DeepSparkError: The comparison ended without a result.
    """
    report = inspect_solver(config)
    write_picture(report, config.svg)
    return certified(report, config.parity_cases) if config.parity else report
