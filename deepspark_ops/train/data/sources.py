"""Makes a net independent of the working directory: sources, mean files and lists become absolute paths.

With an ingested dataset the layers' own sources and mean files are replaced by the dataset's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from caffe_import.data.hdf5_source import hdf5_list_names, require_listed_files
from caffe_import.file_access.allowed_roots import may_quote
from caffe_import.file_access.relative_paths import find_relative
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import DatasetPaths, write_text_whole, write_whole
from deepspark_ops.shards.manifest import mean_path
from deepspark_ops.stores.store_path import DataPath, StorePath
from deepspark_ops.train.data.data_binding import DRAWS_ITSELF, READS_FILES


@dataclass
class SourceResolver:
    """Resolves the nets of a run.

    Attributes:
        dataset: Ingested dataset (absolute); None keeps the nets' own sources.
        solver: The solver's file, for the rules of ``relative_paths``.
        lists: Folder for lists of HDF5 files with lines made absolute, and for copies of mean files.
        notes: Replaced files, for the log.
    """

    dataset: DataPath | None
    solver: Path
    lists: Path
    notes: list[str] = field(default_factory=list)
    _lists: dict[Path, str] = field(default_factory=dict)
    _copies: dict[StorePath, Path] = field(default_factory=dict)

    def resolve(self, net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
        """Return a copy of a net with absolute paths in all data layers."""
        resolved = caffe_pb2.NetParameter()
        resolved.CopyFrom(net)
        for layer in resolved.layer:
            if layer.type in DRAWS_ITSELF:
                self._resolve_windows(layer)
            elif layer.transform_param.mean_file:
                self._resolve_mean(layer)
            if layer.type in READS_FILES:
                self._resolve_source(layer)
        return resolved

    def write_lists(self) -> None:
        """Write the lists and mean files named by ``resolve``; to be called before the files are read.

        Raises:
            DataError: A mean file cannot be read.
        """
        for stored, copy in self._copies.items():
            try:
                with write_whole(copy) as temporary:
                    stored.fetch(temporary)
            except OSError as error:
                msg = f"{error.filename or stored}: {error.strerror or error}"
                raise DataError(msg) from error
        for path, text in self._lists.items():
            write_text_whole(path, text)

    def _resolve_mean(self, layer: caffe_pb2.LayerParameter) -> None:
        transform = layer.transform_param
        if self.dataset is None:
            transform.mean_file = str(self._find(layer, transform.mean_file, "mean_file"))
            return
        mean = mean_path(self.dataset)
        self._note(f'layer "{layer.name}": mean_file "{transform.mean_file}" is replaced by the dataset\'s {mean}')
        if isinstance(mean, StorePath):
            mean = self._copies.setdefault(mean, self.lists / mean.name)
        transform.mean_file = str(mean)

    def _resolve_windows(self, layer: caffe_pb2.LayerParameter) -> None:
        """Make the paths of a WindowData layer absolute; the layer reads its own files also in a run with a dataset."""
        parameters = layer.window_data_param
        if parameters.source:
            parameters.source = str(self._find(layer, parameters.source))
        parameters.root_folder = self._root_folder(layer, parameters.root_folder)
        if layer.transform_param.mean_file:
            layer.transform_param.mean_file = str(self._find(layer, layer.transform_param.mean_file, "mean_file"))

    def _resolve_source(self, layer: caffe_pb2.LayerParameter) -> None:
        if self.dataset is not None:
            split = _split_of(layer)
            if split:
                _set_source(layer, str(DatasetPaths(self.dataset).split(split)))
            return
        if layer.type == "Data" and layer.data_param.source:
            layer.data_param.source = str(self._find(layer, layer.data_param.source))
        elif layer.type == "ImageData" and layer.image_data_param.source:
            parameters = layer.image_data_param
            parameters.source = str(self._find(layer, parameters.source))
            parameters.root_folder = self._root_folder(layer, parameters.root_folder)
        elif layer.type == "HDF5Data" and layer.hdf5_data_param.source:
            layer.hdf5_data_param.source = str(self._absolute_list(layer, layer.hdf5_data_param.source))

    def _root_folder(self, layer: caffe_pb2.LayerParameter, written: str) -> str:
        """Return a root folder with an absolute beginning; the end stays, since Caffe joins names as texts.

        Without a root folder Caffe's lists are relative to the working directory. A root folder without such a folder
        may be the beginning of names in the folder above.
        """
        if not written:
            return f"{Path.cwd()}/"
        folder, name = os.path.split(written)
        root_folder = self._find(layer, written, "root_folder")
        if not name:
            return f"{root_folder}/"
        return str(root_folder if root_folder.is_dir() else self._find(layer, folder or ".", "root_folder") / name)

    def _absolute_list(self, layer: caffe_pb2.LayerParameter, source: str) -> Path:
        """Return the list, or the path of a list with absolute lines in place of relative lines."""
        path, root = self._find_with_root(layer, source)
        if not path.is_file():
            return path  # the error comes when the file is opened
        files = hdf5_list_names(path, root)
        if all(Path(file).is_absolute() for file in files):
            return path
        if not may_quote(path):
            require_listed_files(path, [root / file for file in files])
        text = "".join(f"{root / file}\n" for file in files)
        for target, list_text in self._lists.items():
            if list_text == text:
                return target
        target = self.lists / f"{len(self._lists)}_{path.name}"
        self._lists[target] = text
        return target

    def _find(self, layer: caffe_pb2.LayerParameter, written: str, field_name: str = "source") -> Path:
        return self._find_with_root(layer, written, field_name)[0]

    def _find_with_root(
        self, layer: caffe_pb2.LayerParameter, written: str, field_name: str = "source"
    ) -> tuple[Path, Path]:
        """Return the file and the root folder of its relative path; the working directory for a missing file."""
        named = f'{field_name} of layer "{layer.name}"'
        path, root = find_relative(written, self.solver, field_name=named) or (Path(written), Path())
        return path.absolute(), root.absolute()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _set_source(layer: caffe_pb2.LayerParameter, source: str) -> None:
    if layer.type == "Data":
        layer.data_param.source = source
    elif layer.type == "ImageData":
        layer.image_data_param.source = source
    else:
        layer.hdf5_data_param.source = source


def _split_of(layer: caffe_pb2.LayerParameter) -> str:
    """Return the split of a layer; empty for a layer of both phases."""
    phases = {rule.phase for rule in layer.include if rule.HasField("phase")}
    if phases == {caffe_pb2.TRAIN}:
        return "train"
    return "test" if phases == {caffe_pb2.TEST} else ""
