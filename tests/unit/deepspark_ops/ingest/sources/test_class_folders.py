"""Folders of classes, on disk and in archives: class, order, training and test folders."""

import os
import shutil
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.preview import make_preview
from deepspark_ops.ingest.sources.class_folders import digest_class_folders, index_class_folders, own_splits
from deepspark_ops.ingest.sources.registry import detect_format, with_own_splits
from deepspark_ops.shards.manifest import read_manifest
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr

FILES = ("cat/1.jpg", "cat/deep/er/2.JPG", "ant/3.png", "ant/4 b.png", "bee/5.bmp")


def fill(root: Path, names=FILES, first=0) -> Path:
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        ending = os.path.splitext(name)[1].lower()
        (root / name).write_bytes(cv2.imencode(ending, image_bgr(first + i))[1].tobytes())
    return root


def pack(folder: Path, path: Path) -> Path:
    kind = {".zip": "zip", ".tar": "tar", ".gz": "gztar"}[path.suffix]
    archive = Path(shutil.make_archive(str(path.with_name(path.name.split(".")[0])), kind, folder))
    return archive.rename(path)


def classes_of(index) -> dict[str, str]:
    return {name: index.class_names[label] for name, label in zip(index.names, index.labels, strict=True)}


EXPECTED = {name: name.partition("/")[0] for name in FILES}


def test_folder_gives_the_first_folder_as_class_and_files_in_sorted_order(tmp_path):
    root = fill(tmp_path / "root")
    (root / "ant" / "notes.md").write_text("no image")
    (root / ".cache").mkdir()
    (root / ".cache" / "x.jpg").write_bytes(b"")
    (root / "cat" / ".hidden.jpg").write_bytes(b"")
    index = index_class_folders(root, tmp_path)
    assert (index.class_names, index.are_names, index.decode_color) == (("ant", "bee", "cat"), True, True)
    assert index.names == sorted(FILES)
    assert classes_of(index) == EXPECTED
    with index.reader.subset(np.array([4, 0])).opened() as read:
        assert [read(0), read(1)] == [(root / index.names[4]).read_bytes(), (root / index.names[0]).read_bytes()]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
@pytest.mark.parametrize("top", ["", "top", "top/images"])
def test_archive_gives_the_same_as_the_folder(tmp_path, name, top):
    fill(tmp_path / "root" / top)
    archive = pack(tmp_path / "root", tmp_path / name)
    for source in (archive, Path(f"{archive}::{top}"), Path(f"{archive}::./{top}/")):
        (tmp_path / "work").mkdir(exist_ok=True)
        index = index_class_folders(source, tmp_path / "work")
        assert classes_of(index) == EXPECTED
        with index.reader.opened() as read:
            content = [read(i) for i in range(len(index.names))]
        assert content == [(tmp_path / "root" / top / file).read_bytes() for file in index.names]
        if name != "a.tar.gz" or "::" in str(source):
            assert detect_format(source) == "class_folders"


def test_an_image_beside_the_class_folders_is_a_bad_record(tmp_path):
    root = fill(tmp_path / "root")
    shutil.copy(root / "cat" / "1.jpg", root / "a cover.jpg")
    index = index_class_folders(root, tmp_path)
    assert classes_of(index) == EXPECTED
    assert [(item.name, item.reason) for item in index.rejected] == [
        ("a cover.jpg", "the image lies in no class folder")
    ]
    with index.reader.opened() as read:  # the bad one shifts no other
        assert read(0) == (root / index.names[0]).read_bytes()


def test_class_folders_may_be_links(tmp_path):
    root = fill(tmp_path / "root", ["cat/1.jpg"])
    (root / "dog").symlink_to(fill(tmp_path / "elsewhere", ["2.jpg"]))
    assert classes_of(index_class_folders(root, tmp_path)) == {"cat/1.jpg": "cat", "dog/2.jpg": "dog"}


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("train", "test", "val"), {"train": "train", "test": "test", "validation": "val"}),
        (("train", "val"), {"train": "train", "test": "val"}),
        (("train",), {"train": "train"}),
        (("train", "cat"), None),
        (("cat", "dog"), None),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_training_and_test_folders_below_the_root_are_found(tmp_path, folders, expected, packed):
    for folder in folders:
        fill(tmp_path / "root" / folder)
    root = pack(tmp_path / "root", tmp_path / "a.zip") if packed else tmp_path / "root"
    mark = "::" if packed else "/"
    named = expected and {split: Path(f"{root}{mark}{name}") for split, name in expected.items()}
    assert own_splits(root) == named
    config = with_own_splits(IngestConfig(source=root, output=tmp_path / "o", source_format="class_folders"))
    sources = {"train": config.source, "validation": config.validation_source, "test": config.test_source}
    assert {split: path for split, path in sources.items() if path} == (named or {"train": root})
    named_config = IngestConfig(source=root, output=tmp_path / "o", source_format="class_folders", test_source="mine")
    assert with_own_splits(named_config).test_source == Path("mine")


def test_sets_are_never_taken_for_classes(tmp_path):
    for folder in ("train", "val"):
        fill(tmp_path / "root" / folder)
    archive = pack(tmp_path / "root", tmp_path / "a.tar.gz")
    with pytest.raises(ConfigError) as caught:
        index_class_folders(archive, tmp_path)
    assert str(caught.value) == (
        f"source={archive} has the folders train, val, which are sets and no classes; give source={archive}::train"
        f" and test_source={archive}::val"
    )


def test_the_folder_above_the_class_folders_as_source_causes_a_warning(tmp_path, caplog):
    root = fill(tmp_path / "root", ("one/1.jpg", "pets/ant/1.png", "pets/cat/2.jpg", "pets/cat/3.jpg", "wild/a/5.jpg"))
    assert index_class_folders(root, tmp_path).class_names == ("one", "pets", "wild")
    assert caplog.messages == [
        f'ingest: {root}: every image of class "pets" lies in one of 2 folders below, e.g. pets/ant; if these are the'
        ' classes, give the folder "pets" as source'
    ]


def test_sets_beside_other_folders_lead_on_and_an_unlabelled_test_set_is_named(tmp_path, caplog):
    root = tmp_path / "root"
    for folder in ("train", "val", "masks"):
        fill(root / folder)
    with pytest.raises(ConfigError) as caught:
        detect_format(root)
    assert str(caught.value) == (
        f"source={root} has the folders masks, train, val, which are sets and no classes; give source={root}/train and"
        f" test_source={root}/val"
    )
    shutil.rmtree(root / "masks")
    fill(root / "test", ["1.jpg"])
    assert own_splits(root) == {"train": root / "train", "test": root / "val"}
    assert caplog.messages == [f"ingest: of {root} the folders test are not read"]


def test_a_dataset_from_train_and_test_folders_has_one_order_of_classes(tmp_path):
    fill(tmp_path / "root" / "train", FILES)
    fill(tmp_path / "root" / "test", ["cat/9.png", "bee/8.png"], first=20)
    config = with_own_splits(IngestConfig(source=tmp_path / "root", output=tmp_path / "out"))
    manifests = ingest(config, tmp_path / "work")
    assert manifests["train"].class_names == manifests["test"].class_names == ("ant", "bee", "cat")
    assert (manifests["train"].label_histogram, manifests["test"].label_histogram) == ((2, 1, 2), (0, 1, 1))
    assert manifests["test"].source.path == str(tmp_path / "root" / "test")


def test_what_only_resembles_class_folders_leads_on(tmp_path):
    flat = fill(tmp_path / "flat", ["1.jpg", "2.jpg"])
    with pytest.raises(ConfigError) as caught:
        detect_format(flat)
    assert str(caught.value) == (
        f"source={flat} is a folder of 2 images without classes, e.g. 1.jpg; put the images of each class into a folder"
        f" of its name, or write an image list ('path label' lines) and give it with root_folder={flat}"
    )
    fill(tmp_path / "outer" / "images")
    with pytest.raises(ConfigError, match=r"did you mean the class folders in .*/outer/images\?"):
        detect_format(tmp_path / "outer")
    (flat / "list.txt").write_text("1.jpg 0\n")
    with pytest.raises(ConfigError, match=r"did you mean the list .*/flat/list\.txt\?"):
        detect_format(flat)


def test_a_root_without_images_in_folders_is_refused(tmp_path):
    with pytest.raises(DataError, match="no image in a folder of its class; 1 images without one"):
        index_class_folders(fill(tmp_path / "root", ["1.jpg"]), tmp_path)
    archive = pack(fill(tmp_path / "other"), tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"::gone: no image there; the archive's folders: ant, bee, cat"):
        index_class_folders(Path(f"{archive}::gone"), tmp_path)
    with zipfile.ZipFile(archive, "a") as appended:
        appended.writestr("list", "x 1")
    with pytest.raises(ConfigError, match="a file of the archive and no folder; source_format=image_list reads a list"):
        index_class_folders(Path(f"{archive}::list"), tmp_path / "w")


def test_digest_changes_with_names_and_files(tmp_path):
    root = fill(tmp_path / "root")
    digests = [digest_class_folders(root)]
    os.utime(root / "cat" / "1.jpg", ns=(1, 1))
    digests.append(digest_class_folders(root))
    (root / "ant" / "3.png").rename(root / "bee" / "3.png")
    digests.append(digest_class_folders(root))
    assert len(set(digests)) == 3
    assert digest_class_folders(root) == digests[-1]


def test_a_look_ahead_takes_training_and_test_folders_too(tmp_path):
    for folder in ("train", "val"):
        fill(tmp_path / "root" / folder, FILES[: 5 if folder == "train" else 2])
    (tmp_path / "look").mkdir()
    preview = make_preview(SourceConfig(source=tmp_path / "root"), tmp_path / "look")
    assert preview.n_samples == {"train": 5, "test": 2}
    assert read_manifest(preview.dataset / "test").class_names == ("ant", "bee", "cat")
