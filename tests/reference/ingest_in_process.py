"""An ingestion without Spark: the driver's steps and the tasks, one after the other in this process."""

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.plan import make_recipe, plan_ingest
from deepspark_ops.ingest.shard_task import run_shard_task


def ingest(config: IngestConfig, work, *, backwards: bool = False):
    """Return the manifests; ``work`` is a scratch folder. ``backwards`` runs the tasks in the other order."""
    work.mkdir(exist_ok=True)
    recipe = make_recipe(config)
    plan = plan_ingest(config, recipe, work)
    tasks = plan.tasks[::-1] if backwards else plan.tasks
    return commit_dataset(config, recipe, plan, [run_shard_task(task) for task in tasks])
