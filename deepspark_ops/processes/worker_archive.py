"""An archive with the environment of a Spark worker: an interpreter with its standard library, and a worker's packages.

Spark unpacks the archive beside each executor. Python finds its library from the place of its program, so a copy of the
installation works in any folder. A virtual environment does not: it names the folder of its interpreter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from caffe_import.extras import require
from deepspark_ops.config.commands.pack import PackConfig
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.processes.spark_submit import WORKERS_PYTHON
from deepspark_ops.run_paths import write_whole
from deepspark_ops.sizes import size_text

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ENVIRONMENT: Final = "environment"
"""Folder beside an executor into which Spark unpacks the archive."""
PYTHON: Final = f"./{ENVIRONMENT}/bin/python"
_VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARIES: Final = "lib/of_python"
_UNUSED_PACKAGES: Final = frozenset({"libclang"})
"""Required by TensorFlow's builders of custom operations alone; 60 MB."""
_UNUSED_FOLDERS: Final = ("tensorflow/include",)
"""C++ headers; 430 MB."""
_UNUSED_OF_PYTHON: Final = re.compile(
    r"(site-packages|dist-packages|test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|config-.*|EXTERNALLY-MANAGED"
    r"|lib-dynload/(_tkinter|_curses|_curses_panel|readline|nis|_crypt|_test\w*|_ctypes_test|xx\w*)\.[^/]*)(/.*)?"
)
_OF_EVERY_HOST: Final = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|gcc_s|stdc\+\+))\.so.*")
"""Libraries of glibc and the C++ compiler, of which a host must have its own."""
_GZIP_LEVEL: Final = 3
_CHECK_TIMEOUT_S: Final = 300.0
_START_SCRIPT: Final = f"""#!/bin/sh
here=$(cd "${{0%/*}}" && pwd) || exit
LD_LIBRARY_PATH="$here/../{_LIBRARIES}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{_VERSION}" "$@"
"""


@dataclass(frozen=True)
class WorkerArchive:
    """A written archive.

    Attributes:
        path: The archive.
        versions: Name -> version of the packages in the archive.
        n_bytes: Size of the archive.
        n_unpacked_bytes: Room that the environment takes on an executor's host.
    """

    path: Path
    versions: Mapping[str, str]
    n_bytes: int
    n_unpacked_bytes: int

    def settings(self) -> dict[str, str]:
        """Return the Spark properties of a job whose workers run in the archive's environment."""
        return {"spark.archives": f"{self.path}#{ENVIRONMENT}", WORKERS_PYTHON: PYTHON}

    def summary(self) -> str:
        """Return a line on the archive's content and sizes."""
        return (
            f"{len(self.versions)} packages, {size_text(self.n_bytes)}, {size_text(self.n_unpacked_bytes)} on the"
            " disk of each executor"
        )


def write_worker_archive(config: PackConfig) -> WorkerArchive:
    """Write the archive, after a start of its interpreter with a worker's imports.

    Raises:
        ConfigError: A package is not installed here, or its files are unknown.
        DeepSparkError: The copied environment does not start.
        MissingExtra: TensorFlow is not installed here.
        OSError: The archive cannot be written.
    """
    require("tensorflow", "packaging", part="deepspark pack")
    names = [f"deepspark[{config.extras}]", *(config.packages or "").split(",")]
    packages = required_packages([name for name in names if name])
    with (
        write_whole(config.output) as temporary,
        tempfile.TemporaryDirectory(prefix=".deepspark-pack-", dir=config.output.parent) as folder,
    ):
        root = Path(folder)
        stage_interpreter(root)
        site_packages = root / _site_packages(root)
        for package in packages.values():
            for source, name in package_files(package):
                _copy(source, site_packages / name)
        start_check(root, "import deepspark_ops.train.worker.process, deepspark_ops.train.worker.spark_task")
        n_unpacked_bytes = pack_folder(root, temporary)
        n_bytes = temporary.stat().st_size
    versions = {name: package.version for name, package in packages.items()}
    return WorkerArchive(config.output, versions, n_bytes, n_unpacked_bytes)


def required_packages(names: Sequence[str]) -> dict[str, Distribution]:
    """Return name -> installed package, for these requirements and all packages that they require.

    Raises:
        ConfigError: A package is not installed here.
    """
    from packaging.requirements import Requirement

    packages: dict[str, Distribution] = {}
    waiting = [(Requirement(name), "deepspark pack") for name in names]
    requested = set()
    while waiting:
        requirement, asked_by = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        key = (name, frozenset(requirement.extras))
        if key in requested or name in _UNUSED_PACKAGES:
            continue
        requested.add(key)
        try:
            packages[name] = distribution(name)
        except PackageNotFoundError as error:
            msg = f"{asked_by} needs {requirement}, which is not installed here: pip install '{requirement}'"
            raise ConfigError(msg) from error
        _refuse_unknown_extras(requirement, packages[name])
        inner = map(Requirement, packages[name].requires or ())
        waiting += [(further, name) for further in inner if _applies(further, requirement.extras)]
    return dict(sorted(packages.items()))


def _refuse_unknown_extras(requirement: Requirement, package: Distribution) -> None:
    extras = package.metadata.get_all("Provides-Extra") or []
    if unknown := sorted(requirement.extras - set(extras)):
        msg = f"{requirement.name} has no extra {', '.join(unknown)}; allowed: {', '.join(sorted(extras))}"
        raise ConfigError(msg)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def stage_interpreter(root: Path) -> None:
    """Copy this process's interpreter into an empty folder: the program, its standard library, its shared libraries."""
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    target = root / os.path.relpath(library, sys.base_prefix)
    extensions = []
    for source in _files_below(library):
        name = source.relative_to(library)
        if not _UNUSED_OF_PYTHON.fullmatch(str(name)):
            _copy(source, target / name)
            if source.suffix == ".so":
                extensions.append(source)
    _copy(program, root / "bin" / _VERSION)
    for library_file in shared_libraries([program, *extensions]):
        _copy(library_file, root / _LIBRARIES / library_file.name)
    start = root / "bin" / "python"
    start.write_text(_START_SCRIPT, encoding="utf-8")
    start.chmod(0o755)


def shared_libraries(programs: Sequence[Path]) -> list[Path]:
    """Return the shared libraries of programs that a host may lack.

    Raises:
        DeepSparkError: The libraries cannot be listed.
    """
    ldd = shutil.which("ldd", path=f"{os.environ.get('PATH', '')}:{os.defpath}")
    if ldd is None:
        msg = (
            "deepspark pack: found no ldd, which lists the shared libraries of Python; pack on a Linux host with glibc"
        )
        raise DeepSparkError(msg)
    try:
        finished = subprocess.run(
            [ldd, *map(str, programs)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHECK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"deepspark pack: ldd does not list the shared libraries of {programs[0]}: {error}"
        raise DeepSparkError(msg) from error
    paths = dict(re.findall(r"^\s*(\S+) => (/\S+) ", finished.stdout, re.MULTILINE))
    return [Path(path) for name, path in sorted(paths.items()) if not _OF_EVERY_HOST.fullmatch(name)]


def start_check(root: Path, statement: str) -> str:
    """Return the output of a statement in a copied environment, without this process's variables.

    Raises:
        DeepSparkError: The statement fails.
    """
    command = [str(root / "bin" / "python"), "-I", "-c", statement]
    variables = {"PATH": os.defpath, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        finished = subprocess.run(
            command,
            env=variables,
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHECK_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"deepspark pack: the copied environment did not answer within {_CHECK_TIMEOUT_S:g} s: {statement}"
        raise DeepSparkError(msg) from error
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        msg = f"deepspark pack: the copied environment does not start ({statement}): {last}"
        raise DeepSparkError(msg)
    return finished.stdout.strip()


def _site_packages(root: Path) -> Path:
    """Return the folder of packages in a copied interpreter; Debian has another name than Python itself."""
    folder = Path(start_check(root, "import site; print(site.getsitepackages()[0])"))
    return folder.relative_to(root)


def package_files(package: Distribution) -> Iterator[tuple[Path, Path]]:
    """Yield file and relative name of a package's files, with compiled bytecode.

    Raises:
        ConfigError: The package does not say which files it has.
    """
    folders = _editable_folders(package)
    for folder in folders:
        yield from ((path, path.relative_to(folder.parent)) for path in _files_below(folder))
    for file in package.files or ():
        name = Path(str(file))
        if folders and not name.parts[0].endswith(".dist-info"):
            continue  # the way to the folders
        source = Path(str(package.locate_file(file)))
        is_known = not name.is_absolute() and ".." not in name.parts and source.is_file()
        if not is_known or name.suffix == ".pth" or str(name).startswith(_UNUSED_FOLDERS):
            continue
        yield source, name
        if name.suffix == ".py" and (compiled := Path(cache_from_source(str(source)))).is_file():
            yield compiled, name.parent / compiled.parent.name / compiled.name


def _editable_folders(package: Distribution) -> list[Path]:
    """Return the folders of a package whose files lie elsewhere, in a checkout; empty for other packages."""
    name = package.metadata["Name"]
    if package.files is None:
        msg = f"deepspark pack: the installation of {name} lists no files; install it again by pip"
        raise ConfigError(msg)
    address = json.loads(package.read_text("direct_url.json") or "{}")
    if not address.get("dir_info", {}).get("editable"):
        return []
    modules = (package.read_text("top_level.txt") or "").split()
    specs = [find_spec(module) for module in modules]
    folders = [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    if not folders:
        msg = (
            f"deepspark pack: {name} is installed in editable mode, and its folders are unknown; install a wheel of it"
        )
        raise ConfigError(msg)
    return folders


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (path for name in names if (path := Path(parent, name)).is_file())


def _copy(source: Path, target: Path) -> None:
    """Link a file, or copy it where no link is possible; an earlier file of the name stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except FileExistsError:
        return
    except OSError:
        shutil.copy2(source, target)


def pack_folder(root: Path, archive: Path) -> int:
    """Write all files below ``root`` into the archive, as root's; return their bytes."""

    def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 else 0)
        return entry

    n_bytes = 0
    with tarfile.open(archive, "w:gz", compresslevel=_GZIP_LEVEL, dereference=True) as tar:
        for path in sorted(_files_below(root)):
            tar.add(path, str(path.relative_to(root)), filter=of_root)
            n_bytes += path.stat().st_size
    return n_bytes
