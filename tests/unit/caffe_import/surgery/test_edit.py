from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.surgery.edit import Edits, LayerCopy, edited
from caffe_import.surgery.weights_message import read_weights, write_weights
from tests.paths import FIXTURES

FILES = FIXTURES / "caffe" / "files"
MODEL = FILES / "current.caffemodel"


def blobs_after(edits: Edits, tmp_path: Path, source: Path = MODEL, suffix: str = ".caffemodel"):
    net, messages = edited(read_weights(source), edits, where="m")
    write_weights(tmp_path / f"new{suffix}", net)
    return read_caffemodel(tmp_path / f"new{suffix}"), messages


@pytest.mark.parametrize("source", [MODEL, FILES / "current.caffemodel.h5", FILES / "v0_legacy.caffemodel"])
@pytest.mark.parametrize("suffix", [".caffemodel", ".caffemodel.h5"])
def test_layers_are_renamed_dropped_and_taken_from_another_file(tmp_path: Path, source: Path, suffix: str) -> None:
    old_blobs, other = read_caffemodel(source), read_caffemodel(FILES / "double_extra_layer.caffemodel")
    names = [name for name, blobs in old_blobs.items() if blobs]
    first, second = names[0], names[1]
    edits = Edits(
        drops=[second],
        renames={first: "fresh"},
        copies=[LayerCopy(FILES / "double_extra_layer.caffemodel", "somewhere_else", "extra")],
    )
    new_blobs, messages = blobs_after(edits, tmp_path, source, suffix)
    assert {name for name, blobs in new_blobs.items() if blobs} == {*names, "fresh", "extra"} - {first, second}
    for mine, source_blob in zip(new_blobs["fresh"], old_blobs[first], strict=True):
        np.testing.assert_array_equal(mine, source_blob)
    for mine, source_blob in zip(new_blobs["extra"], other["somewhere_else"], strict=True):
        np.testing.assert_array_equal(mine, source_blob)
    assert [line.split()[0] for line in messages] == ["dropped", "renamed", "added"]


def test_two_layers_swap_their_names(tmp_path: Path) -> None:
    old_blobs = read_caffemodel(MODEL)
    first, other = [name for name, blobs in old_blobs.items() if blobs][:2]
    new_blobs, _ = blobs_after(Edits(renames={first: other, other: first}), tmp_path)
    np.testing.assert_array_equal(new_blobs[first][0], old_blobs[other][0])
    np.testing.assert_array_equal(new_blobs[other][0], old_blobs[first][0])


def test_a_layer_gives_up_its_blobs_for_those_of_another(tmp_path: Path) -> None:
    old_blobs = read_caffemodel(MODEL)
    first, other = [name for name, blobs in old_blobs.items() if blobs][:2]
    new_blobs, messages = blobs_after(Edits(copies=[LayerCopy(MODEL, first, other)]), tmp_path)
    np.testing.assert_array_equal(new_blobs[other][0], old_blobs[first][0])
    assert list(new_blobs) == list(old_blobs)
    assert messages[0].startswith(f'replaced "{other}" (')


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(drops=["conv"]), 'm: has no layer "conv"; did you mean "conv1"?; it has '),
        (Edits(renames={"conv1": "ip1"}), 'm: layer "conv1" cannot become "ip1": taken by another layer'),
        (Edits(renames={"conv1": ""}), 'cannot become "": no name'),
        (Edits(copies=[LayerCopy(MODEL, "zzz", "zzz")]), 'current.caffemodel: has no layer "zzz"; it has '),
    ],
)
def test_impossible_edits_are_refused_by_name(edits: Edits, message: str) -> None:
    model = read_weights(MODEL)
    untouched = model.SerializeToString()
    with pytest.raises(WeightsError) as caught:
        edited(model, edits, where="m")
    assert message in str(caught.value)
    assert model.SerializeToString() == untouched
