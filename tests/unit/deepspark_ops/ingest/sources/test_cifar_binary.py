"""CIFAR's binary batches: order over files, RGB to BGR, CIFAR-100's second label."""

from functools import partial

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.sources.cifar_binary import cifar_files
from tests.reference.ingest_in_process import index_of, source_digest_of
from tests.reference.raw_sources import write_cifar

index_cifar = partial(index_of, "cifar_binary")
digest_cifar = partial(source_digest_of, "cifar_binary")


def test_batches_follow_each_other_and_become_bgr(tmp_path):
    second = write_cifar(tmp_path / "data_batch_2.bin", [5, 6], seed=2)
    first = write_cifar(tmp_path / "data_batch_1.bin", [1, 2, 3], seed=1)
    write_cifar(tmp_path / "test_batch.bin", [9], seed=3)
    (tmp_path / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    index = index_cifar(tmp_path)
    assert index.labels.tolist() == [1, 2, 3, 5, 6]
    assert index.names[2:4] == ["data_batch_1_2", "data_batch_2_0"]
    assert index.class_names == ("airplane", "automobile")
    with index.reader.subset(np.array([2, 4, 0])).subset(np.array([1, 2])).opened() as read:
        np.testing.assert_array_equal(read(0), second[1][::-1])
        np.testing.assert_array_equal(read(1), first[0][[2, 1, 0]])


def test_one_file_is_a_source(tmp_path):
    write_cifar(tmp_path / "test_batch.bin", [9, 8])
    assert index_cifar(tmp_path / "test_batch.bin").labels.tolist() == [9, 8]


def test_cifar_100_uses_the_fine_label(tmp_path):
    planes = write_cifar(tmp_path / "train.bin", [77, 3], label_bytes=2)
    index = index_cifar(tmp_path)
    assert index.labels.tolist() == [77, 3]
    with index.reader.opened() as read:
        np.testing.assert_array_equal(read(1), planes[1][::-1])


def test_file_cut_short_is_refused(tmp_path):
    write_cifar(tmp_path / "data_batch_1.bin", [1, 2, 3])
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"not whole CIFAR records of 3,073 or 3,074 bytes: data_batch_1\.bin 9,218"):
        index_cifar(tmp_path)


def test_folder_without_batches_is_refused(tmp_path):
    assert cifar_files(tmp_path) == ()
    with pytest.raises(ConfigError, match="no CIFAR batches here"):
        index_cifar(tmp_path)


def test_digest_sees_every_batch(tmp_path):
    write_cifar(tmp_path / "data_batch_1.bin", [1], seed=1)
    write_cifar(tmp_path / "data_batch_2.bin", [2], seed=2)
    first = digest_cifar(tmp_path)
    write_cifar(tmp_path / "data_batch_2.bin", [3], seed=2)
    assert digest_cifar(tmp_path) != first


def test_cifar_100_uses_the_coarse_label_if_asked(tmp_path):
    write_cifar(tmp_path / "train.bin", [77, 3], label_bytes=2)  # the coarse one is 99
    (tmp_path / "fine_label_names.txt").write_text("apple\nbear\n")
    (tmp_path / "coarse_label_names.txt").write_text("fish\ntrees\n")
    index = index_cifar(tmp_path, cifar_labels="coarse")
    assert (index.labels.tolist(), index.class_names) == ([99, 99], ("fish", "trees"))
    assert index_cifar(tmp_path).class_names == ("apple", "bear")
    digest = digest_cifar(tmp_path, cifar_labels="coarse")
    (tmp_path / "coarse_label_names.txt").write_text("fish\nflowers\n")
    assert digest_cifar(tmp_path, cifar_labels="coarse") != digest


def test_cifar_10_has_no_coarse_labels(tmp_path):
    write_cifar(tmp_path / "data_batch_1.bin", [1])
    with pytest.raises(ConfigError, match="cifar_labels=coarse: these are CIFAR-10's records of one label"):
        index_cifar(tmp_path, cifar_labels="coarse")
