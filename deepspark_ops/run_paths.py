"""Every path of a run's folder and of a dataset's folder; files in them are written whole or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from caffe_import.files.whole_file import sync_file, sync_folder
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.stores.writing import write_text as write_text_whole
from deepspark_ops.stores.writing import written_whole as write_whole

__all__ = ["VERSIONS_NAME", "DatasetPaths", "RunPaths", "sync_file", "sync_folder", "write_text_whole", "write_whole"]

VERSIONS_NAME = "versions"
"""Of the folder of a dataset's earlier versions."""


@dataclass(frozen=True)
class RunPaths:
    """One run, one folder."""

    root: Path

    @property
    def config(self) -> Path:
        """The TrainConfig of the run, JSON."""
        return self.root / "config.json"

    @property
    def dataset(self) -> Path:
        """Which dataset the run began with, and the digest of its manifest, JSON."""
        return self.root / "dataset_version.json"

    @property
    def net(self) -> Path:
        """The net as trained: upgraded, sources resolved."""
        return self.root / "net.prototxt"

    def test_net(self, index: int) -> Path:
        """A test net as used; there where not all nets are the one of ``net.prototxt``."""
        return self.root / f"test_net_{index}.prototxt"

    @property
    def solver(self) -> Path:
        """The solver as used: overrides applied, net replaced by ``net.prototxt``."""
        return self.root / "solver.prototxt"

    @property
    def placement(self) -> Path:
        """Which device of a worker computes which layer, if there is more than one."""
        return self.root / "placement.txt"

    @property
    def events(self) -> Path:
        """One JSON object a line, appended while the run lives."""
        return self.root / "events.jsonl"

    @property
    def parity(self) -> Path:
        """How the run's layer types compare with recorded outputs of Caffe, JSON."""
        return self.root / "parity.json"

    @property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard event files."""
        return self.root / "tensorboard"

    @property
    def snapshots(self) -> Path:
        """Folder of ``<prefix>_iter_N.caffemodel``, ``.solverstate`` and ``.state.h5``."""
        return self.root / "snapshots"

    @property
    def outputs(self) -> Path:
        """Folder of what the nets' HDF5Output layers write: ``train/`` and ``test_<i>/``."""
        return self.root / "outputs"

    @property
    def evaluation(self) -> Path:
        """Folder of ``metrics.json`` and ``report.html``."""
        return self.root / "evaluation"

    @property
    def bundle(self) -> Path:
        """The exported bundle."""
        return self.root / "bundle"

    @property
    def stages(self) -> Path:
        """Folder of what each task of the DAG ran with (``<task>.json``) and how it went (``<task>.status.json``)."""
        return self.root / "stages"

    def stage_status(self, stage: str) -> Path:
        """How far the task of a stage is, and how it ended."""
        return self.stages / f"{stage}.status.json"

    @property
    def decided(self) -> Path:
        """What task check decided: the run's dataset, the weights in production then, the model's name; JSON."""
        return self.stages / "decided.json"

    @property
    def index(self) -> Path:
        """The few numbers that a list of runs shows, JSON; made again whenever what it was made of has changed."""
        return self.root / "index.json"

    @property
    def mlflow(self) -> Path:
        """Which MLflow run this one is, and what was sent there, JSON."""
        return self.root / "mlflow.json"

    @property
    def work(self) -> Path:
        """Scratch of a live run (center file, Spark's local folders); nothing in it outlives the run."""
        return self.root / "work"

    def snapshot(self, prefix: str, iteration: int, suffix: str) -> Path:
        """Path of one snapshot file; ``suffix`` is ``caffemodel``, ``solverstate`` or ``state.h5``."""
        return self.snapshots / f"{prefix}_iter_{iteration}.{suffix}"

    def snapshot_iterations(self) -> list[int]:
        """Iterations of which the state.h5 stands here (written last), ascending."""
        matches = (re.search(r"_iter_(\d+)\.state\.h5$", p.name) for p in self.snapshots.glob("*_iter_*.state.h5"))
        return sorted(int(match[1]) for match in matches if match)


@dataclass(frozen=True)
class DatasetPaths:
    """An ingested dataset: ``dataset.json``, which names the manifests of its version, and a folder for each split."""

    root: DataPath

    def split(self, name: str) -> DataPath:
        """Folder of the split ``train`` or ``test``."""
        return self.root / name

    @property
    def versions(self) -> DataPath:
        """Folder of the earlier versions that are kept; each is a dataset of its own."""
        return self.root / VERSIONS_NAME

    def version(self, digest: str) -> DataPath:
        """Where an earlier version is kept, by the digest of its training set's manifest (``sha256:...``)."""
        return self.versions / digest.removeprefix("sha256:")[:12]

    @property
    def used(self) -> DataPath:
        """An empty file that a training touches when it begins, so that nothing takes the dataset for unused."""
        return self.root / ".last_used"

    @property
    def users(self) -> DataPath:
        """A note for each run that has read the dataset."""
        return self.root / ".users"

    @property
    def report(self) -> DataPath:
        """A page about the dataset, for people; it may be missing."""
        return self.root / "report.html"

    @property
    def contact_sheet(self) -> DataPath:
        """A strip of samples of each class, for people; it may be missing."""
        return self.root / "contact_sheet.zip"
