"""Bundles as stage export writes them, but of a few bytes."""

from deepspark_ops.export.manifest import MANIFEST_VERSION, BundleManifest, file_digest
from tests.reference.evaluations import write_evaluation


def make_bundle(folder, weights=b"weights", *, labels=(), n_classes=2, evaluated=None, **origin):
    """Write a bundle of one small file, with an optional evaluation; return the folder."""
    folder.mkdir(parents=True)
    (folder / "weights.caffemodel").write_bytes(weights)
    if evaluated is not None:
        write_evaluation(folder, evaluated)
    manifest = BundleManifest(
        format_version=MANIFEST_VERSION,
        created="2026-01-01T00:00:00+00:00",
        net="n",
        inputs=(),
        output={"scores": "scores", "classes": "classes", "n_classes": n_classes, "labels": labels},
        outputs=(
            {
                "name": "scores",
                "blob": "prob",
                "task": "classification",
                "shape": (-1, n_classes),
                "n_classes": n_classes,
            },
        ),
        origin={
            "run": "r",
            "iteration": 1,
            "weights": "w",
            "weights_digest": "x",
            "net_digest": "x",
            "solver_digest": "x",
            "config_digest": "x",
            "datasets": {},
            "started_from": None,
            "started_from_digest": None,
            **origin,
        },
        check={
            "n_samples": 1,
            "saved_model_max_relative_difference": 0.0,
            "caffemodel_max_relative_difference": 0.0,
            "allowed": 1e-4,
        },
        files={path.name: file_digest(path) for path in sorted(folder.iterdir())},
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder
