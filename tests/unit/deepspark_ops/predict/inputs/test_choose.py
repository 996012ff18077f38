import cv2
import h5py
import numpy as np
import pytest

from caffe_import.errors import ForbiddenPathError
from caffe_import.file_access.allowed_roots import AllowedRoots, allowed_roots_used
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.samples import BundleForm, SampleForm
from tests.integration.small_run import make_dataset
from tests.paths import FIXTURES
from tests.reference.raw_sources import write_idx

IMAGES = InputContract(
    name="images", shape=(-1, -1, -1, 3), axes="N, H, W, C", dtype="uint8", channels="RGB", preprocessing=()
)


def opened(path, **options):
    config = PredictConfig(bundle="b", input=path, output="o.parquet", **options)
    return open_inputs(config, BundleForm((SampleForm.of(IMAGES),)))


def write_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.zeros((4, 5, 3), np.uint8))


def test_images_of_any_folders_by_name(tmp_path):
    for name in ("b/2.png", "b/1.jpg", "a.png", ".hidden/3.png", "c/d/4.png"):
        write_image(tmp_path / name)
    (tmp_path / "notes.md").write_text("no image")
    inputs = opened(tmp_path)
    assert (inputs.description, inputs.n_records) == ("folder of images", 4)
    assert [record.id for record in inputs.read()] == ["a.png", "b/1.jpg", "b/2.png", "c/d/4.png"]
    assert [record.id for record in opened(tmp_path / "a.png").read()] == ["a.png"]


def test_a_list_with_and_without_labels(tmp_path):
    (tmp_path / "list.txt").write_text("x y.png 3\nz.png\n\nw.jpg,cat\n")
    inputs = opened(tmp_path / "list.txt", input_format="list")
    assert (inputs.n_records, [record.id for record in inputs.read()]) == (3, ["x y.png", "z.png", "w.jpg"])
    assert next(inputs.read()).content == tmp_path / "x y.png"


def test_a_list_names_files_of_the_allowed_folders_alone(tmp_path):
    write_image(tmp_path / "elsewhere/a.png")
    lists = {"list.txt": "a.png\n../elsewhere/a.png\n", "table.csv": "path,kind\na.png,x\n../elsewhere/a.png,y\n"}
    (tmp_path / "lists").mkdir()
    for name, text in lists.items():
        path = tmp_path / "lists" / name
        path.write_text(text)
        confined = opened(path, listed_files={"confined": True}).read()
        assert next(confined).id == "a.png"
        with pytest.raises(ForbiddenPathError, match=rf"^input={path} names .*elsewhere/a\.png.*: it is not read"):
            next(confined)
        allowed = {"confined": True, "allowed_root": tmp_path / "elsewhere"}
        assert len(list(opened(path, listed_files=allowed).read())) == 2
        assert len(list(opened(path, listed_files={"confined": True}, root_folder=tmp_path / "lists/b").read())) == 2
        assert len(list(opened(path).read())) == 2
    with h5py.File(tmp_path / "elsewhere/rows.h5", "w") as file:
        file["data"] = np.zeros((3, 2, 4), np.uint8)
    (tmp_path / "lists/files.txt").write_text("../elsewhere/rows.h5\n")
    with pytest.raises(ForbiddenPathError, match=r"names .*rows\.h5"):
        opened(tmp_path / "lists/files.txt", listed_files={"confined": True})


def test_a_csv_without_names_of_columns_is_a_list(tmp_path):
    write_image(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("a.png,cat\n")
    assert [record.id for record in opened(tmp_path / "t.csv").read()] == ["a.png"]
    (tmp_path / "t.csv").write_text("path,kind\na.png,cat\n")
    assert [record.content for record in opened(tmp_path / "t.csv").read()] == [tmp_path / "a.png"]


def test_a_text_that_is_no_list_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("\nsee below\n")
    with pytest.raises(ConfigError, match='its first line names "see", no image by its name and no file beside'):
        opened(tmp_path / "notes.txt")
    (tmp_path / "see").touch()
    assert opened(tmp_path / "notes.txt").n_records == 1


def test_sources_without_labels_are_read(tmp_path):
    rows = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 4)
    idx = write_idx(tmp_path / "new-images-idx3-ubyte", rows)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data"] = rows
        file["label"] = np.full((3, 2), 0.5)  # no classes
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/files.txt").write_text("rows.h5\n")
    inputs = [opened(idx), opened(tmp_path / "rows.h5"), opened(tmp_path / "lists/files.txt", root_folder=tmp_path)]
    with allowed_roots_used(AllowedRoots.of([tmp_path / "bundle"])):  # as the bundle's net was read
        for source in inputs:
            np.testing.assert_array_equal([record.content for record in source.read()], rows[:, np.newaxis])
    with h5py.File(tmp_path / "named.h5", "w") as file:
        file["images"], file["data"] = rows, rows + 1
    np.testing.assert_array_equal(  # the data set with the name of the bundle's input
        [record.content for record in opened(tmp_path / "named.h5").read()], rows[:, np.newaxis]
    )
    records = opened(FIXTURES / "tfrecord/odd.tfrecord").read()
    assert [record.id for record in records] == ["n00.png", "no_label", "floats"]  # one has no image


def test_a_dataset_by_its_root_or_its_split(tmp_path):
    images, _ = make_dataset(tmp_path, n_train=5, n_test=40)["test"]
    for path in (tmp_path, tmp_path / "test"):
        records = list(opened(path).read())
        np.testing.assert_array_equal(np.stack([record.content for record in records]), images)
    assert opened(tmp_path, split="train").n_records == 5


def test_nothing_of_a_known_kind(tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder"):
        opened(tmp_path / "none")
    with pytest.raises(ConfigError, match="of no known format"):
        opened(tmp_path)


def test_any_part_of_files_and_datasets_is_read_by_itself(tmp_path):
    for name in ("a.png", "b/1.png", "b/2.png", "c.png"):
        write_image(tmp_path / "images" / name)
    (tmp_path / "list.txt").write_text("a.png\nb/1.png\nb/2.png\nc.png\n")
    make_dataset(tmp_path / "dataset", n_train=5, n_test=40)
    for path, options in [
        (tmp_path / "images", {}),
        (tmp_path / "list.txt", {"root_folder": tmp_path / "images"}),
        (tmp_path / "dataset", {}),  # two shards of 20
    ]:
        inputs = opened(path, **options)
        ids = [record.id for record in inputs.read()]
        for start, stop in [(1, 3), (0, 1), (2, None), (19, 21), (21, 40), (3, 99)]:
            assert [record.id for record in inputs.read(start, stop)] == ids[start:stop], (path, start, stop)


def test_a_root_folder_may_begin_the_names_of_a_list(tmp_path, monkeypatch):
    for name in ("data/img_1.png", "data/2.png"):
        write_image(tmp_path / name)
    (tmp_path / "list.txt").write_text("1.png\n")
    monkeypatch.chdir(tmp_path)
    for root in (tmp_path / "data" / "img_", "data/img_"):
        (record,) = opened(tmp_path / "list.txt", input_format="list", root_folder=root).read()
        assert (record.id, record.content) == ("1.png", tmp_path / "data" / "img_1.png")
    (tmp_path / "list.txt").write_text("/2.png\n")  # Caffe joins the texts "data/" and "/2.png"
    (record,) = opened(tmp_path / "list.txt", input_format="list", root_folder=tmp_path / "data").read()
    assert record.content == tmp_path / "data" / "2.png"


def test_a_circle_of_links_ends(tmp_path):
    write_image(tmp_path / "images" / "cat" / "1.png")
    write_image(tmp_path / "elsewhere" / "2.png")
    (tmp_path / "images" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "images" / "cat" / "up").symlink_to(tmp_path / "images")
    assert [record.id for record in opened(tmp_path / "images").read()] == ["cat/1.png", "dog/2.png"]
