#!/bin/sh
# Runs what depends on the interpreter on other Pythons than that of .venv: `make test-pythons`. Arguments go to pytest.
# `make test-pythons WHOLE=1` runs all of `make test` on each.
#
#   the newest that pyproject.toml names    interrupts, arguments, journal, simulation, races: the points of an interrupt,
#                                           the warnings and the private parts of the standard library differ
#   /usr/bin/python3, if its release is     arguments, journal: the reading of annotations differs between patch releases
#   another
#
# Each has a copy of the tracked and new files, with its own .venv, in .venv/pythons/<version>. Without WHOLE, the .venv
# lacks the packages in `unasked`, which these tests never import and which take longer to install than the tests to run.
# If a Python is missing, or cannot make a .venv, a line says so, and the run goes on.
set -eu
unset CDPATH
cd "$(dirname "$0")/.."

patch="tests/seglog/test_arguments.py tests/catalog/test_arguments.py tests/offload/test_arguments.py tests/seglog/journal"
newest="$patch tests/faults/test_interrupts.py tests/promises/test_interrupts.py tests/promises/test_interrupted_leaders.py
    tests/promises/test_interrupted_ephemeral_appends.py tests/seglog/test_sealed_version.py tests/simulation tests/races"
unasked="atheris grpcio-tools import-linter mypy pandas policy-sentry pyarrow pyspark ruff"
if [ -n "${WHOLE:-}" ]; then patch="" newest="" unasked=""; fi

release() { "$1" -c 'import sys, ensurepip, venv; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true; }
own=$(release .venv/bin/python)

# Runs the tests $3... on Python $2, which is called $1.
run_on() {
    name=$1
    python=$2
    shift 2
    version=$(release "$python")
    if [ -z "$version" ]; then
        echo "pythons: NOT TESTED on $name: it is not on this machine, or has no venv"
        return 0
    fi
    if [ "$version" = "$own" ]; then
        echo "pythons: $name is $version, as .venv: make test covers it"
        return 0
    fi
    tree=.venv/pythons/$version
    mkdir -p "$tree"
    git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\\0" "$f"; done' - |
        tar -c --null -T - | tar -x -C "$tree"
    awk -v unasked=" $unasked " '/^[^ #]/ { split($0, words, "=="); drop = index(unasked, " " words[1] " ") } !drop' \
        requirements.lock >"$tree/requirements.lock"
    PYTHON=$python "$tree/scripts/setup.sh"
    echo "pythons: $name is $version"
    (cd "$tree" && scripts/isolated.sh env SEGLOG_TEST_SEED="${SEGLOG_TEST_SEED:-30}" \
        python -m pytest -m "not long and not soak and not pulsar" -n 3 --dist loadfile --no-loadscope-reorder "$@")
}

named=$(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml | sort -t. -k2 -n | tail -n 1)
newest_python=python$named
if [ -z "$(release "$newest_python")" ]; then # a shim of pyenv does not run unless its version is chosen
    for each in "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$named".*/bin/python3; do newest_python=$each; done
fi
# shellcheck disable=SC2086
run_on "Python $named, the newest that pyproject.toml names," "$newest_python" $newest "$@"
# shellcheck disable=SC2086
run_on "/usr/bin/python3" /usr/bin/python3 $patch "$@"
