"""The stage: report, comparison with Caffe, certificate and picture, as the config requests."""

from __future__ import annotations

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.preflight.certificate import certified, write_certificate
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.picture.net_picture import write_picture
from deepspark_ops.preflight.report import PreflightReport
from deepspark_ops.run_paths import RunPaths


def run_check(config: CheckConfig) -> PreflightReport:
    """Return the report; write the picture, and for a solver without errors the run's certificate.

    Raises:
        CaffeImportError: The solver or a net's file cannot be read.
        ConfigError: The picture cannot be written, or there are no recorded cases.
        DeepSparkError: The comparison ended without a result.
    """
    report = inspect_solver(config)
    write_picture(report, config.svg)
    # A refused run needs no certificate.
    if config.parity and not (report.errors and config.run_dir is not None):
        report = certified(report, config.parity_cases, on_gpu=config.devices == "gpu")
        if config.run_dir is not None:
            config.run_dir.mkdir(parents=True, exist_ok=True)
            write_certificate(report, config.parity_cases, RunPaths(config.run_dir).parity)
    return report
