#!/bin/sh
# Prints a policy from its template: `policy.sh ROLE TENANT BUCKET`, or `policy.sh bucket BUCKET`. The containers of the
# stand-ins have no seglog. Elsewhere, `seglog tenant policy` prints the same. `make docs` writes the templates.
set -eu
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "policy.sh: $1" >&2
    exit 2
}

# Is the whole of $1 of the pattern $2? grep goes by lines, so a newline in it is refused first.
matching() {
    [ "$(printf '%s' "$1" | tr -d '\n')" = "$1" ] && printf '%s\n' "$1" | LC_ALL=C grep -Exq "$2"
}

if [ $# -eq 2 ] && [ "$1" = bucket ]; then
    template=$here/bucket-policy.json
    tenant=-
    bucket=$2
elif [ $# -eq 3 ]; then
    case $1 in
    reader | writer | maintainer | admin) template=$here/policies/$1.json ;;
    *) fail "no role $1: reader, writer, maintainer or admin" ;;
    esac
    tenant=$2
    matching "$tenant" '[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?' || fail "not a tenant's name: $tenant"
    case $tenant in
    cold | doctor | gc | oplog | pins | refs | tags | tenants | tmp) fail "a reserved name: $tenant" ;;
    esac
    bucket=$3
else
    fail "usage: policy.sh ROLE TENANT BUCKET, or policy.sh bucket BUCKET"
fi
matching "$bucket" '[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]' || fail "not a bucket's name: $bucket"
sed -e "s/@BUCKET@/$bucket/g" -e "s/@TENANT@/$tenant/g" "$template"
