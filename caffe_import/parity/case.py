"""A recorded case, its outcome, and the table of case kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.errors import CaffeImportError
from caffe_import.file_access.regular_file import regular_path, regular_text
from caffe_import.parity.findings import Findings
from caffe_import.parity.setting import PLAIN_SETTING, Setting

Status = Literal["passed", "failed", "unsupported"]

RECORDED_CASES: Final = Path(__file__).parent / "cases"
"""The cases that come with the package: outputs of BVLC Caffe 1.0. In a checkout a link to tests/fixtures/caffe."""

_MODULES = {
    "layer": "net_cases",
    "net": "net_cases",
    "solver": "solver_cases",
    "snapshot": "snapshot_cases",
    "transform": "transform_cases",
    "filler": "filler_cases",
    "model_file": "file_cases",
    "file": "file_cases",
    "upgrade": "upgrade_cases",
}


@dataclass(frozen=True)
class Case:
    """Entry of ``index.json``. Paths are relative to ``folder``, the working directory of the case.

    Attributes:
        folder: The folder of the index, absolute.
        record: The entry of the index.
    """

    folder: Path
    record: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The case's name, unique in the folder."""
        return str(self.record["name"])

    @property
    def kind(self) -> str:
        """Kind of comparison: layer, net, solver, ..."""
        return str(self.record["kind"])

    @property
    def is_random(self) -> bool:
        """Do the recorded values depend on a random generator? Then only properties can be checked."""
        return bool(self.record.get("random", False))

    def files(self, suffix: str) -> list[Path]:
        """Return the case's files that end in ``suffix``, in the index's order."""
        return [Path(name) for name in self.record["files"] if name.endswith(suffix)]

    def file(self, suffix: str) -> Path:
        """Return the first file with the ending ``suffix``; KeyError without a file."""
        paths = self.files(suffix)
        if not paths:
            msg = f'case "{self.name}" lists no file that ends in "{suffix}"'
            raise KeyError(msg)
        return paths[0]


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        name: The case's name.
        kind: Its kind.
        status: ``unsupported`` means that the importer refuses the case.
        worst: Largest relative error of all members compared.
        n_compared: Members and facts compared.
        faults: Why it did not pass, one line each.
    """

    name: str
    kind: str
    status: Status
    worst: float
    n_compared: int
    faults: tuple[str, ...]


def load_cases(folder: Path) -> list[Case]:
    """Return the cases of ``folder/index.json`` in its order.

    Raises:
        FileNotFoundError: There is no index.
    """
    index = json.loads(regular_text(folder / "index.json"))
    return [Case(folder.resolve(), record) for record in index["cases"]]


def load_archive(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a whole npz without pickled objects."""
    with np.load(regular_path(path), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def run_case(case: Case, setting: Setting = PLAIN_SETTING) -> Outcome:
    """Run one case with ``setting``, with the case's folder as the process's working directory: one case at a time.

    An error of this importer about an unsupported feature counts as unsupported, with the error's message. Other
    exceptions are faults and are raised.
    """
    findings = Findings(setting)
    run = _runner(case.kind)
    if run is None:
        reason = f'no comparison for kind "{case.kind}"; known: {", ".join(sorted(_MODULES))}'
        return Outcome(case.name, case.kind, "unsupported", 0.0, 0, (reason,))
    try:
        with chdir(case.folder):
            run(case, findings)
    except CaffeImportError as error:
        return Outcome(case.name, case.kind, "unsupported", findings.worst, findings.n_compared, (str(error),))
    if findings.n_compared == 0:
        findings.fault("nothing was compared")
    status: Status = "failed" if findings.faults else "passed"
    return Outcome(case.name, case.kind, status, findings.worst, findings.n_compared, tuple(findings.faults))


def _runner(kind: str) -> Callable[[Case, Findings], None] | None:
    if kind not in _MODULES:
        return None
    run: Callable[[Case, Findings], None] = import_module(f"caffe_import.parity.{_MODULES[kind]}").run
    return run
