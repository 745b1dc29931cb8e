#!/bin/sh
# Builds MinIO and its client `mc` into .venv/bin, where there is a Go. `make setup` comes first. The versions are those of
# localstack/minio/Dockerfile. Fails, with the reason, if one of the two is not there in the end.
set -eu
unset CDPATH
cd "$(dirname "$0")/.."

minio=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
mc=github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9
mark=.venv/.minio-finished
wanted="$minio $mc"
[ "$(cat "$mark" 2>/dev/null)" != "$wanted" ] || exit 0

go=$(command -v go || echo /usr/local/go/bin/go)
if ! [ -x "$go" ]; then
    echo "minio: no Go, so no MinIO" >&2
    exit 1
fi
for module in "$minio" "$mc"; do
    if ! GOBIN="$PWD/.venv/bin" "$go" install "$module"; then
        echo "minio: $module could not be built" >&2
        exit 1
    fi
done
printf '%s' "$wanted" >"$mark"
