"""Images of a table: groups stay in one split, and each sample's group is known to whoever evaluates."""

import cv2
import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.shard_task import run_shard_task
from deepspark_ops.ingest.tables.columns import choose_roles, columns_of
from deepspark_ops.ingest.tables.image_rows import index_images, pack_images
from deepspark_ops.ingest.versions.base import find_base
from deepspark_ops.shards.reader import open_dataset
from tests.reference.table_files import ingest_parts, write_table

N_ROWS, N_GROUPS = 120, 12


def pixels_of(row: int) -> np.ndarray:
    return np.random.default_rng(row).integers(0, 256, (3, 4, 5), dtype=np.uint8)


def image(row: int) -> bytes:
    return cv2.imencode(".png", pixels_of(row).transpose(1, 2, 0))[1].tobytes()


def table(n_rows: int = N_ROWS) -> pa.Table:
    return pa.table(
        {
            "image": [image(row) for row in range(n_rows)],
            "label": [row % 3 for row in range(n_rows)],
            "patient": [f"p{row % N_GROUPS}" for row in range(n_rows)],
            "weight": np.ones(n_rows),
        }
    )


def ingest(folder, table: pa.Table, **options):
    """Ingest the table without Spark, bringing up what is there; return the manifests."""
    source = write_table(folder / "t.parquet", table)
    options = {"group_column": "patient", "test_fraction": 0.3, "samples_per_shard": 20, **options}
    config = IngestConfig(source=source, output=folder / "out", **options)
    roles = choose_roles(config, columns_of(table.schema))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    parts = [pack_images([batch], roles, work, part) for part, batch in enumerate(table.to_batches(50))]
    index = index_images([type(part).from_json(part.to_json()) for part in parts], roles, source, folder, work)
    recipe = make_recipe(config)
    plan = plan_images(config, recipe, work, lambda *_: index, find_base(config, recipe.options))
    return commit_dataset(config, recipe, plan, [run_shard_task(task) for task in plan.tasks])


def groups_of(folder, split) -> np.ndarray:
    with open_dataset(folder / "out" / split) as dataset:
        return np.concatenate([dataset.group_hashes(shard) for shard in range(len(dataset.shards))])


def test_a_group_stays_in_one_split_and_is_known_of_each_sample(tmp_path):
    manifests = ingest(tmp_path, table())
    train, test = groups_of(tmp_path, "train"), groups_of(tmp_path, "test")
    assert (len(train), len(test)) == (manifests["train"].n_samples, manifests["test"].n_samples)
    assert not set(train) & set(test)
    assert len({*train, *test}) == N_GROUPS
    assert manifests["test"].group == "patient"
    verify_dataset(tmp_path / "out", lambda _: None)
    # Each group's samples, identified by their pixels, are the samples of the table.
    with open_dataset(tmp_path / "out" / "test") as dataset:
        pixels = np.concatenate([dataset.read(i, 0, shard.n_samples)[0] for i, shard in enumerate(dataset.shards)])
    rows = {
        cv2.imdecode(np.frombuffer(image(row), np.uint8), 1).transpose(2, 0, 1).tobytes(): row for row in range(N_ROWS)
    }
    patients = [rows[image.tobytes()] % N_GROUPS for image in pixels]
    assert len(set(zip(patients, test.tolist(), strict=True))) == len(set(patients)) == len(set(test))


def test_groups_of_samples_that_are_taken_over_stay(tmp_path):
    ingest(tmp_path, table(90))
    old_groups = groups_of(tmp_path, "train")
    manifests = ingest(tmp_path, table(), id_column=None)
    assert manifests["train"].version == 2
    new_groups = groups_of(tmp_path, "train")
    assert set(old_groups) == set(new_groups)
    assert len(new_groups) == manifests["train"].n_samples > len(old_groups)
    assert not set(new_groups) & set(groups_of(tmp_path, "test"))


def test_a_dataset_without_groups_is_not_gone_on_from_with_groups(tmp_path):
    ingest(tmp_path, table(90), group_column=None)
    assert open_dataset(tmp_path / "out" / "train").group_hashes(0) is None
    manifests = ingest(tmp_path, table())
    assert (manifests["train"].version, manifests["train"].group) == (1, "patient")
    assert len(groups_of(tmp_path, "train")) == manifests["train"].n_samples


def test_weights_of_images_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="weight_column=weight: samples that are images have no weights"):
        ingest(tmp_path, table(), weight_column="weight")


def test_groups_of_a_table_of_features_are_known_the_same_way(tmp_path):
    table = pa.table(
        {"a": np.arange(60.0), "label": [row % 2 for row in range(60)], "g": [row % 5 for row in range(60)]}
    )
    config = IngestConfig(
        source=write_table(tmp_path / "t.parquet", table), output=tmp_path / "out", group_column="g", test_fraction=0.4
    )
    ingest_parts(config, [table], tmp_path / "work")
    train, test = groups_of(tmp_path, "train"), groups_of(tmp_path, "test")
    assert len(set(train)) + len(set(test)) == 5
    with open_dataset(tmp_path / "out" / "test") as dataset:
        values = dataset.manifest.table.restore(dataset.read(0, 0, dataset.n_samples)[0])[:, 0].round().astype(int)
    assert len(set(zip((values % 5).tolist(), test.tolist(), strict=True))) == len(set(test))
