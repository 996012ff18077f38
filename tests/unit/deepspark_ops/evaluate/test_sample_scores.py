import dataclasses

import h5py
import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.sample_scores import read_samples
from tests.reference.evaluations import evaluation, write_evaluation
from tests.reference.heap_texts import texts_in_the_heap

LABELS = [0, 1, 1, 0, 1]


def test_what_is_written_reads_back_equal(tmp_path):
    written = evaluation([0, 1, 0, 0, 1], LABELS, content=[7, 2**63 + 5, 1, 2, 3])
    folder = write_evaluation(tmp_path, written)
    read = read_evaluation(folder)
    assert read.metrics == written.metrics
    for field in dataclasses.fields(written.samples.answers):
        expected = getattr(written.samples.answers, field.name)
        column = getattr(read.samples.answers, field.name)
        np.testing.assert_array_equal(column, expected)
        assert column.dtype == expected.dtype
    assert read.samples.content.tolist() == [7, 2**63 + 5, 1, 2, 3]
    assert (read.samples.n_classes, read.samples.dataset_digest) == (2, "sha256:same")


def test_a_file_whose_texts_have_variable_length_is_read(tmp_path):
    path = write_evaluation(tmp_path, evaluation(LABELS, LABELS)) / "samples.h5"
    written = read_samples(path)
    samples = read_samples(texts_in_the_heap(path))
    assert (
        (samples.task, samples.dataset_digest)
        == (written.task, written.dataset_digest)
        == (
            "classification",
            "sha256:same",
        )
    )
    assert samples.weights_digest == written.weights_digest


def test_missing_file_names_the_command(tmp_path):
    with pytest.raises(DataError) as caught:
        read_samples(tmp_path / "samples.h5")
    assert str(caught.value) == (
        f'{tmp_path}/samples.h5: no such file, so samples cannot be compared one by one; run "deepspark evaluate" again'
    )


@pytest.mark.parametrize("damage", ["torn", "column", "lengths", "version"])
def test_damaged_or_foreign_file_is_refused(tmp_path, damage):
    path = write_evaluation(tmp_path, evaluation(LABELS, LABELS)) / "samples.h5"
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:500])
    else:
        with h5py.File(path, "r+") as file:
            if damage == "version":
                file.attrs["format_version"] = 4
            else:
                del file["rank"]
            if damage == "lengths":
                file.create_dataset("rank", data=np.zeros(3, np.int32))
    words = {
        "torn": "damaged",
        "column": "damaged .*rank",
        "lengths": "different lengths",
        "version": "is 4, allowed: 1 to 3",
    }
    with pytest.raises(DataError, match=rf'samples.h5: .*{words[damage]}.*run "deepspark evaluate" again$'):
        read_samples(path)


def test_files_of_two_evaluations_are_not_mixed(tmp_path):
    write_evaluation(tmp_path, evaluation(LABELS, LABELS, weights="old"))
    (tmp_path / "metrics.json").write_text(evaluation(LABELS, LABELS, weights="new").metrics.to_json())
    with pytest.raises(DataError, match=r"are of different evaluations \(weights sha256:new and sha256:old\)"):
        read_evaluation(tmp_path)


def test_groups_are_kept_and_a_file_of_version_2_has_none(tmp_path):
    written = evaluation(LABELS, LABELS)
    assert read_samples(write_evaluation(tmp_path / "none", written) / "samples.h5").group is None
    samples = dataclasses.replace(written.samples, group=np.array([5, 2**63 + 1, 5, 5, 7], np.uint64))
    path = write_evaluation(tmp_path / "some", Evaluated(written.metrics, samples)) / "samples.h5"
    assert read_samples(path).group.tolist() == [5, 2**63 + 1, 5, 5, 7]
    with h5py.File(path, "r+") as file:
        del file["group"]
        file.attrs["format_version"] = 2
    assert read_samples(path).group is None
