#!/bin/sh
# Makes the bucket in MinIO, and for each tenant a user of each role with its policy: `init-minio.sh ENDPOINT`.
# The users' secret is SEGLOG_SECRET for all of them: this is a stand-in on loopback. Safe to repeat. Needs `mc` on PATH.
set -eu
unset CDPATH
endpoint=$1
bucket=${SEGLOG_BUCKET:-seglog}
tenants=${SEGLOG_TENANTS:-acme globex}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

store() { mc --config-dir "$work/mc" --quiet "$@"; }

store alias set seglog "$endpoint" "$MINIO_ROOT_USER" "$MINIO_ROOT_PASSWORD"
store mb --ignore-existing "seglog/$bucket"
for tenant in $tenants; do
    for role in reader writer maintainer admin; do
        name=$tenant-$role
        "$here/policy.sh" "$role" "$tenant" "$bucket" >"$work/$name.json"
        store admin policy create seglog "$name" "$work/$name.json"
        store admin user add seglog "$name" "$SEGLOG_SECRET"
        store admin policy attach seglog "$name" --user "$name" 2>/dev/null || true # it is attached already
        echo "user $name: $role of s3://$bucket/$tenant"
    done
done
