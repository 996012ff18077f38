"""An ingestion without Spark: the driver's steps and the tasks, one after the other in this process."""

from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.shard_task import run_shard_task
from deepspark_ops.ingest.sources.registry import digest_source, index_source
from deepspark_ops.ingest.versions.base import find_base


def ingest(config: IngestConfig, work, *, backwards: bool = False, goes_on: bool = False):
    """Return the manifests; ``work`` is a scratch folder.

    ``backwards`` runs the tasks in the other order; ``goes_on`` takes over what is there, as the stage does.
    """
    work.mkdir(exist_ok=True)
    recipe = make_recipe(config)
    plan = plan_images(config, recipe, work, base=find_base(config, recipe.options) if goes_on else None)
    tasks = plan.tasks[::-1] if backwards else plan.tasks
    return commit_dataset(config, recipe, plan, [run_shard_task(task) for task in tasks])


def planned_images(folder, source, **options):
    """Return the plan of an ingestion of images into ``folder / "out"``."""
    config = parse_config(IngestConfig, {"source": source, "output": folder / "out", **options})
    return plan_images(config, make_recipe(config), folder)


def index_of(source_format: str, source, work=Path("work"), **options):
    """Return the index of a source of a format; ``options`` are fields of the config."""
    config = IngestConfig(source=source, output=Path("out"), **options)
    return index_source(config, config.source, source_format, work)


def source_digest_of(source_format: str, source, **options) -> str:
    """Return the digest of a source, likewise."""
    config = IngestConfig(source=source, output=Path("out"), **options)
    return digest_source(config, config.source, source_format)


def index_records(index) -> list:
    """Return the records of a source, read one after the other."""
    with index.reader.opened() as read:
        return [read(position) for position in range(len(index.labels))]
