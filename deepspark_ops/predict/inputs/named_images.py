"""Images that a list or a table names: files below the allowed folders alone."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.file_access.allowed_roots import AllowedRoots
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.config.ingest import SourceConfig
from deepspark_ops.ingest.files.source_folders import source_folders
from deepspark_ops.processes.named_files import allowed_roots
from deepspark_ops.stores.store_path import DataPath, StorePath, joined


@dataclass(frozen=True)
class NamedImages:
    """The images of a list or table.

    Attributes:
        folder: Start of relative paths.
        roots: Folders whose files may be named.
        named_by: The list or table, for messages.
    """

    folder: DataPath
    roots: AllowedRoots
    named_by: str

    @classmethod
    def of(cls, config: BundleInputConfig) -> NamedImages:
        """Return the images that a config's input names, with the limits of ingestion on the same input."""
        source = parse_config(SourceConfig, {"source": config.input, "root_folder": config.root_folder})
        roots = allowed_roots(config.lists(), source_folders(source))
        return cls(images_folder(config), roots, f"input={config.input}")

    def path(self, name: str) -> DataPath:
        """Return the path of a named image.

        Raises:
            ForbiddenPathError: The image lies outside of the allowed folders, and the limits are enforced.
        """
        path = joined(self.folder, name)
        if not isinstance(path, StorePath):
            self.roots.check(path, named_by=self.named_by)
        return path


def images_folder(config: BundleInputConfig) -> DataPath:
    """Return the folder of the relative paths in a table or list."""
    return config.root_folder or (config.input if config.input.is_dir() else config.input.parent)
