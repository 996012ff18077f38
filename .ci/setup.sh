#!/usr/bin/env bash
# Brings what is needed and is not there: .ci/setup.sh run|tools|test
#   run    the pipeline: a virtual environment (requirements.txt) and a Java runtime for Spark
#   tools  lint, types and the tests' tools (requirements-dev.txt); no Java, nothing outside the clone
#   test   tools, and Java
# Repeating it is instant: a stamp in .venv names the lock file that was installed.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
OLDEST_JAVA=17
REPORT_EVERY_S=${DEEPSPARK_SETUP_REPORT_S:-15}
case ${1:-} in
  run) lock=requirements.txt needs_java=yes ;;
  tools) lock=requirements-dev.txt needs_java=no ;;
  test) lock=requirements-dev.txt needs_java=yes ;;
  *) echo "setup: found \"${1:-}\"; give run, tools or test" >&2; exit 2 ;;
esac
stamp=.venv/.installed-$lock

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Only for what runs Spark: lint and types leave the system alone.
may_install() { [ $needs_java = yes ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && grep -qiE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; }

apt_install() {  # apt_install PACKAGE WHAT
  may_install || fail "$2 is missing; this brings it:  sudo apt-get install --yes $1"
  say "$2 is missing; installing $1"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq "$1" >/dev/null
}

java_release() {
  local java=java
  [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
  "$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

bring_java() {
  local found
  found=$(java_release || true)
  if [ -n "$found" ] && [ "$found" -ge $OLDEST_JAVA ]; then return; fi
  [ -z "${JAVA_HOME:-}" ] || fail "JAVA_HOME=$JAVA_HOME is Java ${found:-of unknown version}; Spark needs $OLDEST_JAVA or newer"
  apt_install openjdk-17-jre-headless "Java $OLDEST_JAVA or newer"
}

is_supported() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12), (3, 13)})' >/dev/null 2>&1; }

find_python() {
  local python
  for python in python3.12 python3.11 python3.13 python3 python; do
    if is_supported "$python"; then
      command -v "$python"
      return
    fi
  done
  return 1
}

make_environment() {
  local python
  python=$(find_python) || fail "Python 3.11, 3.12 or 3.13 is needed and none was found on PATH (Debian 12: apt-get install python3)"
  say "virtual environment .venv with $("$python" --version)"
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    apt_install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" "Python's venv module"
  fi
  rm -rf .venv
  "$python" -m venv .venv
}

# uv reads its own settings only; whoever gave pip an index or certificates means it for this installation too.
follow_pip_settings() {
  local index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
  if [ -n "$index" ] && [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=$index; fi
  if [ -n "${PIP_CERT:-}" ] && [ -z "${SSL_CERT_FILE:-}" ]; then export SSL_CERT_FILE=$PIP_CERT; fi
}

# In a log, where uv shows no bars: lines while the command runs. They need no process that could outlive this one.
run_with_lines() {  # run_with_lines COMMAND...
  local started=$SECONDS status=0 installed
  "$@" 2> >(grep -v '^ [-+~] ' >&2) &  # one line for each of 160 packages
  local command=$!
  trap "kill $command 2>/dev/null || true" EXIT
  exec 9<> <(:)
  while kill -0 "$command" 2>/dev/null; do
    read -r -t "$REPORT_EVERY_S" -u 9 || true  # a sleep without a process
    installed=$({ find .venv/lib -maxdepth 4 -name '*.dist-info' 2>/dev/null || true; } | wc -l)  # uv removes folders meanwhile
    if kill -0 "$command" 2>/dev/null; then say "still installing after $((SECONDS - started)) s: $installed packages are unpacked"; fi
  done
  exec 9>&-
  wait "$command" || status=$?
  trap - EXIT
  return $status
}

install_requirements() {
  follow_pip_settings
  if ! .venv/bin/uv --version 2>/dev/null | grep -q "^uv $UV_VERSION"; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  fi
  say "installing $lock: about 3 GB are unpacked, and fetched unless uv's cache has them, which takes some minutes"
  # Without compiled bytecode TensorFlow's import takes ten seconds instead of two.
  local install=(.venv/bin/uv pip install --python .venv/bin/python --compile-bytecode --require-hashes --requirement "$lock")
  if [ -t 2 ]; then "${install[@]}"; else run_with_lines "${install[@]}"; fi  # a terminal gets uv's own progress
  .venv/bin/uv pip install --python .venv/bin/python --quiet --no-deps --no-build-isolation --editable .
}

case $PWD in *[[:space:]]*) fail "the path of this clone has a space in it ($PWD); Spark's scripts cannot cope: move it" ;; esac
if [ $needs_java = yes ]; then bring_java; fi
# An environment that was moved with its clone still runs, but its scripts name the old place.
is_supported .venv/bin/python && grep -qF "$PWD/.venv" .venv/bin/activate || make_environment
wanted=$(cat "$lock" pyproject.toml | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  install_requirements
  echo "$wanted" >"$stamp"
fi
