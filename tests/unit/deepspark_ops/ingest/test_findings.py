"""Nothing silently: what is odd about a dataset is counted in the manifest, named in a file, and refused if asked."""

import json

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import check_strict
from deepspark_ops.ingest.findings import Finding, Findings, summary
from deepspark_ops.shards.manifest import read_manifest
from tests.reference.dataset_files import listed
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr, write_images
from tests.unit.deepspark_ops.ingest.files.test_image_header import jpeg_with_exif


@pytest.fixture
def config(tmp_path):
    source = write_images(tmp_path / "raw", 12, size=(7, 6))
    return IngestConfig(
        source=source, output=tmp_path / "out", test_fraction=0, samples_per_shard=5, resize_height=7, resize_width=6
    )


def add(config, name: str, content: bytes, label: int) -> None:
    (config.source.parent / name).write_bytes(content)
    config.source.write_text(config.source.read_text() + f"{name} {label}\n")


def png(image) -> bytes:
    return cv2.imencode(".png", image)[1].tobytes()


def named(path) -> set[tuple[str, str]]:
    lines = path.read_text().splitlines()
    return {(item["kind"], item["name"]) for item in map(json.loads, lines)}


def test_sound_data_have_no_warnings(tmp_path, config):
    manifest = ingest(config, tmp_path / "work")["train"]
    assert (manifest.warnings, manifest.warnings_file) == ({}, None)
    assert not list((config.output / "train").glob("warnings*"))


def test_every_kind_is_counted_and_named(tmp_path, config):
    jpeg = cv2.imencode(".jpg", image_bgr(50, (7, 6)))[1].tobytes()
    add(config, "damaged.jpg", jpeg[:-2] + bytes(range(64)) + jpeg[-2:], 0)
    add(config, "deep.png", png(image_bgr(51, (7, 6)).astype(np.uint16) * 257), 0)
    add(config, "clear.png", png(np.dstack([image_bgr(52, (7, 6)), image_bgr(53, (7, 6))[..., :1]])), 1)
    add(config, "turned.jpg", jpeg_with_exif(6), 1)
    add(config, "again.png", png(image_bgr(4, (7, 6))), 1)  # as image 4, which has label 1, too
    add(config, "other.png", png(image_bgr(5, (7, 6))), 0)  # as image 5, which has label 2
    config.source.write_text(config.source.read_text() + "deep.png 2\n")
    add(config, "lonely.png", png(image_bgr(54, (7, 6))), 4)
    manifest = ingest(config, tmp_path / "work")["train"]
    assert manifest.warnings == {
        "damaged_image": 1,
        "reduced_to_8_bits": 2,
        "alpha_dropped": 1,
        "orientation_applied": 1,
        "duplicate": 1,
        "duplicate_other_label": 2,
        "path_with_two_labels": 1,
        "class_without_sample": 1,
        "class_with_one_sample": 1,
    }
    assert named(listed(config.output / "train", "warnings.jsonl")) == {
        ("damaged_image", "damaged.jpg"),
        ("reduced_to_8_bits", "deep.png"),
        ("alpha_dropped", "clear.png"),
        ("orientation_applied", "turned.jpg"),
        ("duplicate", "again.png"),
        ("duplicate_other_label", "other.png"),
        ("duplicate_other_label", "deep.png"),
        ("path_with_two_labels", "deep.png"),
        ("class_without_sample", "3"),
        ("class_with_one_sample", "4"),
    }
    assert read_manifest(config.output / "train") == manifest
    text = next(
        line for line in listed(config.output / "train", "warnings.jsonl").read_text().splitlines() if "other" in line
    )
    assert json.loads(text)["text"] == "has the content of train record img/5.png, label 2; its own label is 0"


def test_a_test_record_that_was_trained_on_is_named(tmp_path, config):
    (config.source.parent / "test.txt").write_text("img/3.png 0\n")
    config = config.model_copy(update={"test_source": config.source.parent / "test.txt"})
    manifests = ingest(config, tmp_path / "work")
    assert manifests["train"].warnings == {}
    assert manifests["test"].warnings == {"duplicate_in_test": 1}
    assert named(listed(config.output / "test", "warnings.jsonl")) == {("duplicate_in_test", "img/3.png")}


def test_strict_refuses_and_keeps_what_was_there(tmp_path, config):
    add(config, "again.png", png(image_bgr(4, (7, 6))), 1)
    manifests = ingest(config, tmp_path / "work")
    strict = config.model_copy(update={"strict": True})
    with pytest.raises(DataError) as caught:
        ingest(strict.model_copy(update={"seed": 2}), tmp_path / "work2")
    message = "strict: records with the content of an earlier one: 1; all are in "
    assert str(caught.value) == f"{message}{config.output}/warnings.jsonl"
    assert named(config.output / "warnings.jsonl") == {("duplicate", "again.png")}
    assert read_manifest(config.output / "train") == manifests["train"]
    with pytest.raises(DataError, match=f"{message}{listed(config.output / 'train', 'warnings.jsonl')}"):
        check_strict(strict, manifests)
    check_strict(config, manifests)


def test_strict_lets_notes_pass(tmp_path, config):
    add(config, "turned.jpg", jpeg_with_exif(6), 1)
    manifest = ingest(config.model_copy(update={"strict": True}), tmp_path / "work")["train"]
    assert manifest.warnings == {"orientation_applied": 1}
    check_strict(config.model_copy(update={"strict": True}), {"train": manifest})


def test_warnings_of_an_earlier_ingestion_go(tmp_path, config):
    old_list = config.source.read_text()
    add(config, "again.png", png(image_bgr(4, (7, 6))), 1)
    ingest(config, tmp_path / "work")
    config.source.write_text(old_list)
    ingest(config, tmp_path / "work2")
    assert read_manifest(config.output / "train").warnings_file is None


def test_of_many_all_are_counted_and_the_first_named():
    findings = Findings()
    for i in range(2500):
        findings.add(Finding("duplicate", str(i), "x", i))
    assert (findings.counts["duplicate"], len(findings.named)) == (2500, 1000)
    assert summary(findings.counts) == "records with the content of an earlier one: 2,500"
