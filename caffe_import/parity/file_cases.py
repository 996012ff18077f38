"""Cases of kind ``model_file`` and ``file``: what a net has after reading Caffe's files, and the files we write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.hdf5_output import write_hdf5_outputs
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.param_layout import Vector
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.net_cases import compare_params
from caffe_import.parity.snapshot_cases import hdf5_content, read_message
from caffe_import.tf_graph.predict import compile_forward

Array = npt.NDArray[Any]


def run(case: Case, findings: Findings) -> None:
    """Read the case's files into a net, run the net, and write the files again."""
    net = build_net_spec(read_net(case.file(".prototxt")), phase="TEST")
    archive = load_archive(case.file(".npz"))
    if case.kind == "file":
        _compare_hdf5_output(case, net, archive, findings)
        return
    models = [Path(name) for name in case.record["files"] if ".caffemodel" in name and not name.endswith(".npz")]
    for path in models:
        vector = np.full(net.params.n_params, archive.get("initial_value", 0.0), np.float32)
        copy_weights(net, vector, read_caffemodel(path), where=str(path))
        # Reading copies numbers: equal, not near.
        compare_params(net, vector, members_under(archive, "param"), f"{path.name}:", 0.0, findings)
        _compare_outputs(net, vector, archive, path.name, findings)
        if "hdf5_tree" in case.record:
            _compare_written(net, vector, path, case.record["hdf5_tree"], findings)


def _compare_outputs(
    net: NetSpec, vector: Vector, archive: Mapping[str, Array], where: str, findings: Findings
) -> None:
    tops = members_under(archive, "top")
    forward = compile_forward(net, n_threads=1, outputs=list(tops), device=findings.setting.device)
    blobs = forward(vector, members_under(archive, "input"))
    for name, caffe_blob in tops.items():
        findings.compare(f"{where}:top/{name}", blobs[name], caffe_blob, findings.bounds.forward)


def _compare_written(net: NetSpec, vector: Vector, caffe_file: Path, tree: list[str], findings: Findings) -> None:
    with TemporaryDirectory() as folder:
        our_file = Path(folder) / caffe_file.name
        write_caffemodel(our_file, net, vector)
        if caffe_file.suffix == ".h5":
            findings.agree(f"{caffe_file.name}: names", sorted(hdf5_content(our_file)), sorted(tree))
            findings.agree(f"{caffe_file.name}: content", hdf5_content(our_file), hdf5_content(caffe_file))
        else:
            findings.hold(
                claim=read_message(our_file) == read_message(caffe_file),
                otherwise=f"{caffe_file.name}: our file is another message than Caffe's",
            )


def _compare_hdf5_output(case: Case, net: NetSpec, archive: Mapping[str, Array], findings: Findings) -> None:
    inputs = members_under(archive, "input")
    forward = compile_forward(net, n_threads=1, outputs=list(inputs), device=findings.setting.device)
    blobs = forward(np.zeros(net.params.n_params, np.float32), inputs)
    caffe_file = case.file(".h5")
    with TemporaryDirectory() as folder:
        written = write_hdf5_outputs(net, blobs, root=Path(folder))
        findings.agree("files written", [str(path.relative_to(folder)) for path in written], [str(caffe_file)])
        findings.agree("content", hdf5_content(written[0]), hdf5_content(caffe_file))
