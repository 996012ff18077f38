import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.model_folder import ModelFolder
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation

ANNA = Author("anna")


@pytest.fixture
def config(tmp_path):
    return PromoteConfig(models=tmp_path / "models", model="digits")


@pytest.fixture
def model(config):
    return ModelFolder(config.models / config.model)


class Registry:
    """Promotes bundles with different weights; each decision was made against the production of this time."""

    def __init__(self, folder, config):
        self.folder = folder
        self.config = config

    def bundle(self, name, **options):
        return make_bundle(self.folder / "runs" / name / "bundle", name.encode(), run=name, **options)

    def decision(self, *, against=None, wrong=False):
        decision = decide(evaluation([1 if wrong else 0], [0]), None, self.config, against=against)
        return decision.model_copy(update={"promotes": not wrong})

    def promote(self, name, *, against=None, author=ANNA, keep=None, **options):
        config = self.config.model_copy(update={"keep": keep})
        bundle = self.bundle(name, **options)
        return promote(bundle, self.decision(against=against), config, author, run_dir=bundle.parent)


@pytest.fixture
def registry(tmp_path, config):
    return Registry(tmp_path, config)
