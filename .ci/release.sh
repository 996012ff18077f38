#!/usr/bin/env bash
# Builds and checks a release from the last commit: release.sh VERSION. Nothing is sent anywhere.
# The result is build/release/dist. TESTS=no leaves make test, the docs and the demo to whoever has run them.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-}
say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 2; }

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "VERSION=$version: give three numbers, e.g. make release VERSION=1.1.0"
declared=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
[ "$declared" = "$version" ] || fail "VERSION=$version, pyproject.toml has version $declared: change one of them"
grep -q "^## $version (" CHANGELOG.md || fail "CHANGELOG.md has no section \"## $version (DATE)\": move the lines of Unreleased there"
[ -z "$(git status --porcelain)" ] || fail "the checkout has changes; commit them: a release is made from the last commit"

if [ "${TESTS:-yes}" = yes ]; then make test docs-check docs; fi

.ci/docs_environment.sh
work=build/release
rm -rf "$work"
mkdir -p "$work/tree" "$work/dist"
git archive HEAD | tar -x -C "$work/tree"
(cd "$work/tree" && "$OLDPWD/.venv/bin/python" docs/generate/index_readme.py)
say "building wheel and source distribution"
.venv/bin/uv build --quiet --python .venv/bin/python --no-build-isolation --out-dir "$work/dist" "$work/tree"
.venv/docs/bin/twine check --strict "$work"/dist/*

say "installing the wheel into a new environment"
wheel=("$work"/dist/*.whl)
.venv/bin/uv venv --quiet --python .venv/bin/python "$work/venv"
.venv/bin/uv pip install --quiet --compile-bytecode --python "$work/venv/bin/python" --constraint requirements.txt "deepspark[all] @ file://$PWD/${wheel[0]}"
# Outside of the checkout, or its own packages would be found.
demo=$(mktemp -d)
trap 'rm -rf "$demo" "$work/venv" "$work/tree"' EXIT
bin=$PWD/$work/venv/bin
examples=$("$bin/python" -P -c 'import deepspark_ops, pathlib; print(pathlib.Path(deepspark_ops.__file__).parent / "examples")')
cd "$demo"
if [ "${TESTS:-yes}" = yes ]; then
  PATH=$bin:$PATH DEEPSPARK_HOME=$demo deepspark demo
else
  PATH=$bin:$PATH
  deepspark ingest "$examples/digits/digits8x8-images-idx3-ubyte.gz" --output digits --resize-height 28 --resize-width 28 --max-pixel 16 --engine process --limit 900
  deepspark train "$examples/digits/lenet_solver.prototxt" --dataset digits --run-dir run --n-workers 1 --overrides 'max_iter: 100 test_interval: 100 snapshot: 100'
  deepspark evaluate run
  deepspark export run --formats saved_model,caffe
fi
cd "$OLDPWD"
say "ready: $(ls "$work"/dist | tr '\n' ' ')"
say "next: git tag v$version && git push --tags; twine upload $work/dist/*"
