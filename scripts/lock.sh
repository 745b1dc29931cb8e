#!/bin/sh
# Writes requirements.lock, and for what only one target needs: benchmarks/requirements.lock for `make bench`,
# tests/requirements-http.lock for `make test-http`, tests/requirements-browser.lock for `make test-browser` and
# scripts/requirements-site.lock for `make site`. Each has every version with its hashes for every platform and Python that
# pyproject.toml allows, and no address of where it came from, so that an installation asks whatever index pip is set up for.
# Uses uv from PATH, else from .venv, where it is put if need be. Arguments go to uv, as in `--upgrade`.
set -eu
unset CDPATH
cd "$(dirname "$0")/.."

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=.venv/bin/uv
    if [ ! -x "$uv" ]; then
        scripts/setup.sh
        .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    fi
fi
"$uv" pip compile pyproject.toml --extra daemon --extra spark --extra tenants --extra ws --group dev --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --output-file requirements.lock "$@"
"$uv" pip compile --group bench --constraint requirements.lock --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --output-file benchmarks/requirements.lock "$@"
"$uv" pip compile --group http --constraint requirements.lock --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --output-file tests/requirements-http.lock "$@"
"$uv" pip compile --group browser --constraint requirements.lock --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --output-file tests/requirements-browser.lock "$@"
"$uv" pip compile --group site --constraint requirements.lock --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --output-file scripts/requirements-site.lock "$@"
