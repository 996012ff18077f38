import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.registry.candidate import decide_by_hand, find_candidate, forced
from deepspark_ops.registry.changes import promote
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.registry.conftest import ANNA

LABELS = [0, 1] * 50


def scored(n_wrong, **options):
    return evaluation(answers_with(LABELS, range(n_wrong)), LABELS, **options)


def never(*_):
    raise AssertionError("nothing was to be scored")


@pytest.fixture
def champion(registry, config):
    """Version v1, wrong on 9 of 100 samples, weights named as in its own run."""
    bundle = registry.bundle("first", evaluated=scored(9, weights="first"), weights_digest="sha256:first")
    return promote(bundle, registry.decision(), config, ANNA)


def run_with(registry, name, evaluated):
    weights = evaluated.metrics.scored.weights_digest
    bundle = registry.bundle(name, evaluated=evaluated, weights_digest=weights)
    (bundle.parent / "config.json").write_text("{}")
    write_evaluation(bundle.parent / "evaluation", evaluated)
    return bundle.parent


def test_a_bundle_and_a_run_are_told_apart(registry):
    run = run_with(registry, "run", scored(0))
    bundle = registry.bundle("alone")
    assert find_candidate(run) == find_candidate(run / "bundle")
    assert (find_candidate(run).bundle, find_candidate(run).run_dir) == (run / "bundle", run)
    assert find_candidate(bundle).run_dir is None


def test_the_only_bundle_of_a_run_is_taken_under_any_name(registry):
    run = run_with(registry, "run", scored(0))
    (run / "bundle").rename(run / "small")
    assert (find_candidate(run).bundle, find_candidate(run).run_dir) == (run / "small", run)
    make_bundle(run / "large")
    with pytest.raises(ConfigError) as caught:
        find_candidate(run)
    bundles = f"{run}/large, {run}/small"
    assert str(caught.value) == f"bundle={run}: a run with 2 bundles; give one of them: {bundles}"
    make_bundle(run / "bundle")
    assert find_candidate(run).bundle == run / "bundle"


@pytest.mark.parametrize("has_config", [True, False])
def test_a_folder_without_a_bundle_is_refused(tmp_path, has_config):
    finding = 'no bundle and no run; give a folder that "deepspark export" wrote, or the run that has one'
    if has_config:
        (tmp_path / "config.json").touch()
        (tmp_path / "snapshots").mkdir()
        finding = f'a run without a bundle, it holds config.json, snapshots; run "deepspark export {tmp_path}"'
    with pytest.raises(ConfigError) as caught:
        find_candidate(tmp_path)
    assert str(caught.value) == f"bundle={tmp_path}: {finding}"


@pytest.mark.parametrize(("n_wrong", "promotes"), [(0, True), (8, False)])
def test_production_is_compared_by_its_own_answers_to_the_same_samples(registry, config, champion, n_wrong, promotes):
    run = run_with(registry, "second", scored(n_wrong, weights="second"))
    decision = decide_by_hand(find_candidate(run), config, never)
    assert decision.promotes is promotes
    assert (decision.against, decision.comparison.n_gained, decision.comparison.n_new) == ("v1", 9 - n_wrong, 0)


def test_production_is_scored_on_the_runs_samples_if_it_was_not(registry, config, model, champion):
    run = run_with(registry, "second", scored(0, weights="second", data="grown", content=range(50, 150)))
    weights = model.bundle("v1") / "weights.caffemodel"
    scorings = []

    def score(*arguments):
        scorings.append(arguments)
        write_evaluation(arguments[2], scored(9, data="grown", weights=file_digest(weights).removeprefix("sha256:")))

    decision = decide_by_hand(find_candidate(run), config, score)
    assert scorings == [(run, model.bundle("v1"), run / "evaluation_production")]
    assert (decision.promotes, decision.comparison.n_new) == (True, 50)
    assert decide_by_hand(find_candidate(run), config, never) == decision


def test_a_bundle_by_itself_needs_the_samples_of_production(registry, config, champion):
    bundle = registry.bundle("alone", evaluated=scored(0, data="grown"), weights_digest="sha256:w")
    with pytest.raises(
        ConfigError, match=r"production was not scored on the samples of .*alone.*give the run's folder"
    ):
        decide_by_hand(find_candidate(bundle), config, never)


def test_first_model_goes_in_unopposed(registry, config):
    run = run_with(registry, "first", scored(90))
    assert decide_by_hand(find_candidate(run), config, never).promotes


def test_a_bundle_without_answers_needs_force(registry, config):
    candidate = find_candidate(registry.bundle("alone"))
    with pytest.raises(
        ConfigError, match=r"no samples.h5, so there are no answers to compare; .* or promote with --force$"
    ):
        decide_by_hand(candidate, config, never)
    decision = forced(candidate, config, "it must be")
    assert (decision.promotes, decision.is_forced, decision.candidate) == (True, True, None)
    assert decision.reason == "promoted by hand without a comparison: it must be"


def test_an_evaluation_of_other_weights_is_refused(registry, config):
    run = run_with(registry, "run", scored(0, weights="a"))
    write_evaluation(run / "evaluation", scored(0, weights="b"))
    with pytest.raises(DataError, match=r"is the evaluation of the weights sha256:b, the bundle has sha256:a"):
        decide_by_hand(find_candidate(run), config, never)
