"""Format versions of the files of a solver and the nets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from caffe_import.files.prototxt import read_net_form, read_solver_upgrades
from caffe_import.files.upgrade import net_form
from caffe_import.solver.loaded_solver import LoadedSolver
from caffe_import.solver.solver_nets import NetFile
from deepspark_ops.preflight.report import FormatReport


def net_formats(solver: LoadedSolver, path: Path, files: Sequence[NetFile | None]) -> tuple[FormatReport, ...]:
    """Return the format of every file in ``files``, of every net in the solver itself, and of an upgraded solver.

    Raises:
        CaffeImportError: A file changed since the first reading and cannot be read now.
    """
    message = solver.spec.message
    net_paths = dict.fromkeys(file.path for file in files if file is not None)
    forms = {str(net_path): read_net_form(net_path) for net_path in net_paths}
    inside = [getattr(message, name) for name in ("net_param", "train_net_param") if message.HasField(name)]
    for number, net in enumerate([*inside, *message.test_net_param], start=1):
        forms[f"{path}, net {number} inside"] = net_form(net)
    of_solver = read_solver_upgrades(path)
    solver_reports = (FormatReport(file=str(path), version="old", upgrades=of_solver),) if of_solver else ()
    nets = (FormatReport(file=file, version=f.version, upgrades=f.upgrades) for file, f in forms.items())
    return (*solver_reports, *nets)
