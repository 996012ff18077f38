"""Every path of a run's folder and of a dataset's folder; files in both are written whole or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from caffe_import.file_access.whole_file import sync_file, sync_folder
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.stores.writing import write_text as write_text_whole
from deepspark_ops.stores.writing import written_whole as write_whole

__all__ = ["VERSIONS_NAME", "DatasetPaths", "RunPaths", "sync_file", "sync_folder", "write_text_whole", "write_whole"]

VERSIONS_NAME = "versions"
"""Of the folder of a dataset's earlier versions."""


@dataclass(frozen=True)
class RunPaths:
    """Paths of a run's folder."""

    root: Path

    @property
    def config(self) -> Path:
        """The TrainConfig of the run, JSON."""
        return self.root / "config.json"

    @property
    def dataset(self) -> Path:
        """The dataset at the run's start, and the digest of the dataset's manifest, JSON."""
        return self.root / "dataset_version.json"

    @property
    def net(self) -> Path:
        """The net as trained: upgraded, sources resolved."""
        return self.root / "net.prototxt"

    def test_net(self, index: int) -> Path:
        """A test net as used; exists unless all nets equal ``net.prototxt``."""
        return self.root / f"test_net_{index}.prototxt"

    @property
    def solver(self) -> Path:
        """The solver as used: overrides applied, net replaced by ``net.prototxt``."""
        return self.root / "solver.prototxt"

    @property
    def placement(self) -> Path:
        """The device of each layer in a worker, for workers with several devices."""
        return self.root / "placement.txt"

    @property
    def events(self) -> Path:
        """A JSON object a line, appended while the run lives."""
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
        """Folder of each task's config (``<task>.json``) and status (``<task>.status.json``) in the DAG."""
        return self.root / "stages"

    def stage_status(self, stage: str) -> Path:
        """Progress and result of a stage's task."""
        return self.stages / f"{stage}.status.json"

    @property
    def trials(self) -> Path:
        """The trials of a comparison, JSON; missing for other runs."""
        return self.stages / "trials.json"

    @property
    def decided(self) -> Path:
        """Decisions of task check: the run's dataset, the weights in production then, the model's name; JSON."""
        return self.stages / "decided.json"

    @property
    def index(self) -> Path:
        """The few numbers for a list of runs, JSON; rewritten after a change of the source files."""
        return self.root / "index.json"

    @property
    def label(self) -> Path:
        """Name, tags and archive mark of the run, JSON; missing for a run without them."""
        return self.root / "label.json"

    @property
    def decision(self) -> Path:
        """Should the run's model go into production? JSON."""
        return self.root / "decision.json"

    @property
    def mlflow(self) -> Path:
        """The id of this run in MLflow, and the state of the transfer, JSON."""
        return self.root / "mlflow.json"

    @property
    def work(self) -> Path:
        """Scratch of a live run (center file, Spark's local folders); no file outlives the run."""
        return self.root / "work"

    def snapshot(self, prefix: str, iteration: int, suffix: str) -> Path:
        """Path of a snapshot file; ``suffix`` is ``caffemodel``, ``solverstate`` or ``state.h5``."""
        return self.snapshots / f"{prefix}_iter_{iteration}.{suffix}"

    def snapshot_iterations(self) -> list[int]:
        """Iterations with a state.h5 (the last file of a snapshot), ascending."""
        matches = (re.search(r"_iter_(\d+)\.state\.h5$", p.name) for p in self.snapshots.glob("*_iter_*.state.h5"))
        return sorted(int(match[1]) for match in matches if match)

    def last_weights(self) -> Path | None:
        """The ``.caffemodel`` or ``.caffemodel.h5`` of the last snapshot; None without one."""
        iterations = self.snapshot_iterations()
        if not iterations:
            return None
        pattern = re.compile(rf"_iter_{iterations[-1]}\.caffemodel(\.h5)?$")
        return min((path for path in self.snapshots.iterdir() if pattern.search(path.name)), default=None)


@dataclass(frozen=True)
class DatasetPaths:
    """An ingested dataset: ``dataset.json``, with the version's manifests, and a folder for each split."""

    root: DataPath

    def split(self, name: str) -> DataPath:
        """Folder of the split ``train`` or ``test``."""
        return self.root / name

    @property
    def versions(self) -> DataPath:
        """Folder of the earlier versions; each version is a complete dataset."""
        return self.root / VERSIONS_NAME

    def version(self, digest: str) -> DataPath:
        """Folder of an earlier version, by the digest of the training set's manifest (``sha256:...``)."""
        return self.versions / digest.removeprefix("sha256:")[:12]

    @property
    def used(self) -> DataPath:
        """An empty file, touched at the start of a training to show recent use."""
        return self.root / ".last_used"

    @property
    def users(self) -> DataPath:
        """Folder with a note for each run on the dataset."""
        return self.root / ".users"

    @property
    def report(self) -> DataPath:
        """A page about the dataset, for people; may be missing."""
        return self.root / "report.html"

    @property
    def contact_sheet(self) -> DataPath:
        """A strip of samples of each class, for people; may be missing."""
        return self.root / "contact_sheet.zip"
