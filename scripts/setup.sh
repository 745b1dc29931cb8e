#!/bin/sh
# Makes the development environment in .venv: `make setup`. POSIX sh, because there may be no usable Python yet.
#
#   state of .venv                        what is done
#   finished mark equals what is wanted   nothing
#   begun mark of a process that lives    refused: somebody else is at it
#   begun mark (it was interrupted)       removed, made again
#   moved here, or its Python is gone     removed, made again
#   anything else (none, older lock)      made, or brought up to date in place
#
# The begun mark is set before the first change and taken away after the last, so no half-made environment is used.
# PYTHON names the Python to use, JAVA_HOME the Java; pip keeps its own settings for index and certificates.
set -eu
unset CDPATH PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER
cd "$(dirname "$0")/.."

begun=.venv/.setup-begun
finished=.venv/.setup-finished

say() { printf 'setup: %s\n' "$1"; }
complain() { printf 'setup: %s\n' "$1" >&2; }

# Prints the version of Python $1, as 3.11.7; nothing if it does not run.
python_version() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

# Is version $1 (3.11.7) at least 3.11?
python_fits() {
    major=${1%%.*}
    rest=${1#*.}
    minor=${rest%%.*}
    [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 11 ]; }
}

# Sets `python`; or complains in one line that says what was found.
find_python() {
    found=""
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.13 python3.12 python3.11
    fi
    for candidate in "$@"; do
        version=$(python_version "$candidate")
        [ -n "$version" ] || continue
        if python_fits "$version"; then
            python=$candidate
            return 0
        fi
        found="${found:+$found, }$candidate is $version"
    done
    if [ -n "${PYTHON:-}" ]; then
        found="${found:-PYTHON=$PYTHON does not run}"
    fi
    complain "Python 3.11 or newer is needed; found: ${found:-none}. Install one (Debian: apt install python3 python3-venv; macOS: brew install python@3.13) or name one: make setup PYTHON=/path/to/python3"
    return 1
}

# Prints the major version of Java $1; nothing if it does not run. 1.8.0_412 is 8, 17.0.15 is 17, 21-ea is 21.
java_major() {
    "$1" -version 2>&1 | sed -n 's/^[^"]*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

# Spark needs it. Complains in one line that says what was found.
check_java() {
    install="Install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) or point JAVA_HOME at one"
    if [ -n "${JAVA_HOME:-}" ]; then
        java=$JAVA_HOME/bin/java
        place="JAVA_HOME=$JAVA_HOME"
    else
        java=java
        place="java on PATH"
    fi
    major=$(java_major "$java")
    if [ -z "$major" ]; then
        complain "Java 17 or newer is needed by Spark; found: no working Java ($place). $install"
        return 1
    fi
    if [ "$major" -lt 17 ]; then
        complain "Java 17 or newer is needed by Spark; found: $place is $major. $install"
        return 1
    fi
}

# What a finished environment was made from: any change makes it due.
wanted() {
    printf '%s\n' "$PWD"
    cksum requirements.lock pyproject.toml
}

# pip, which takes only what requirements.lock has a hash for. Some packages have no wheel and are built here: with the
# locked setuptools, installed before them, rather than with whatever an isolated build would fetch. Python compiles the
# modules that it imports, so pip need not compile them all.
install_locked() {
    install=".venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile"
    awk '/^[^ #]/ { builder = /^setuptools==/ } builder' requirements.lock >.venv/builder.lock
    $install --require-hashes -r .venv/builder.lock
    $install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
    $install --no-build-isolation --no-deps --editable .
}

must_go() {
    [ -d .venv ] || return 1
    [ -e "$begun" ] && return 0
    [ -e "$finished" ] && [ "$(head -n 1 "$finished")" != "$PWD" ] && return 0
    version=$(python_version .venv/bin/python)
    [ -z "$version" ] || ! python_fits "$version"
}

if [ -e "$finished" ] && [ ! -e "$begun" ] && [ "$(cat "$finished")" = "$(wanted)" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi

if [ -e "$begun" ] && kill -0 "$(cat "$begun")" 2>/dev/null; then
    complain "process $(cat "$begun") is setting up .venv just now: wait for it (or remove .venv if that is something else)"
    exit 1
fi

fit=yes
find_python || fit=no
check_java || fit=no
[ "$fit" = yes ] || exit 1

if must_go; then
    say "removing .venv: it was interrupted, moved or has lost its Python"
    rm -rf .venv
fi
if [ ! -d .venv ]; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        complain "$python cannot make virtual environments: its venv or ensurepip module is missing. Install it (Debian: apt install python3-venv) or name another Python: make setup PYTHON=/path/to/python3"
        exit 1
    fi
    say "making .venv with $python ($(python_version "$python"))"
    mkdir .venv
    echo $$ >"$begun"
    "$python" -m venv .venv
fi
echo $$ >"$begun"
say "installing what requirements.lock names (some minutes the first time)"
install_locked
wanted >"$finished"
rm "$begun"
say "done"
