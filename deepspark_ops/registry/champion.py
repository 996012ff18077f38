"""Gate for a candidate against the production bundle at the start of the candidate's run."""

from __future__ import annotations

from pathlib import Path

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples
from deepspark_ops.export.manifest import WEIGHTS_NAME, read_manifest
from deepspark_ops.registry.gate import Decision, decide
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.versions import read_versions


def decide_against(candidate: Evaluated, production: Evaluated, bundle: Path, config: PromoteConfig) -> Decision:
    """Decide about a candidate.

    Args:
        candidate: Evaluation of the candidate.
        production: The evaluation of the bundle's weights on the same samples.
        bundle: A version of the model.
        config: Bounds of the gate, and the model's name.

    Raises:
        ConfigError: The metric is not defined for these classes.
        DataError: The evaluation is of other weights than the bundle's, or of other samples than the candidate's; or
            the bundle is damaged.
    """
    manifest = read_manifest(bundle)
    if (weights := production.metrics.scored.weights_digest) != manifest.files[WEIGHTS_NAME]:
        msg = (
            f"production's evaluation is of the weights {weights}, its bundle {bundle} has "
            f'{manifest.files[WEIGHTS_NAME]}; clear task "evaluate_production" of this run'
        )
        raise DataError(msg)
    samples = bundle / SAMPLES_NAME
    names = {record.folder: record.version for record in read_versions(ModelFolder(config.models / config.model))}
    return decide(
        candidate,
        production,
        config,
        production_labels=manifest.output.labels or tuple(str(label) for label in range(manifest.output.n_classes)),
        production_split=manifest.origin.split_rule,
        known_content=read_samples(samples).content if samples.is_file() else None,
        against=names.get(bundle.name, bundle.name),
    )
