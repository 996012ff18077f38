#!/usr/bin/env bash
# Brings .venv/docs, the environment of requirements-docs.txt (site and release tools); instant when it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/docs/.installed
wanted=$(sha256sum <requirements-docs.txt)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
.venv/bin/uv venv --quiet --clear --python .venv/bin/python .venv/docs
.venv/bin/uv pip install --quiet --python .venv/docs/bin/python --require-hashes -r requirements-docs.txt
echo "$wanted" >"$stamp"
