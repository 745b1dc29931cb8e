#!/bin/sh
# Installs what the benchmarks compare with: the packages of benchmarks/requirements.lock into .venv, nats-server and MinIO
# beside them where there is a Go, the server of Durable Streams where there is npm, and nginx and Redis where there is apt. `make setup` comes first. What cannot be had is said here, and the tables say it again.
set -eu
unset CDPATH
cd "$(dirname "$0")/.."

nats=github.com/nats-io/nats-server/v2@v2.15.2
streams=@durable-streams/server@0.3.7
mark=.venv/.yardsticks-finished
wanted=$(cksum benchmarks/requirements.lock scripts/minio.sh scripts/yardsticks.sh)
[ "$(cat "$mark" 2>/dev/null)" != "$wanted" ] || exit 0

complain() {
    printf 'yardsticks: %s\n' "$1" >&2
    complete=no
}

complete=yes
install=".venv/bin/python -m pip install --quiet --disable-pip-version-check"
$install --require-hashes -r benchmarks/requirements.lock || complain "the packages could not be installed"
go=$(command -v go || echo /usr/local/go/bin/go)
if [ -x "$go" ]; then
    GOBIN="$PWD/.venv/bin" "$go" install "$nats" || complain "nats-server could not be built"
else
    complain "no Go, so no nats-server"
fi
scripts/minio.sh || complain "no MinIO"
if command -v npm >/dev/null; then
    mkdir -p .venv/durable-streams
    npm install --silent --no-audit --no-fund --prefix .venv/durable-streams "$streams" ||
        complain "the server of Durable Streams could not be installed"
else
    complain "no npm, so no server of Durable Streams"
fi
# Of Debian's package only the program, so that nothing is installed and no service starts.
if ! command -v nginx >/dev/null; then
    mkdir -p .venv/nginx
    (cd .venv/nginx && apt-get -qq download nginx && dpkg-deb -x nginx_*.deb . && ln -sf ../nginx/usr/sbin/nginx ../bin/nginx) ||
        complain "no nginx"
fi
# The program of redis-server is in redis-tools, and finds its libraries where they lie here.
if ! command -v redis-server >/dev/null; then
    mkdir -p .venv/redis
    (
        cd .venv/redis && apt-get -qq download redis-tools libatomic1 libjemalloc2 liblzf1 &&
            for package in *.deb; do dpkg-deb -x "$package" . || exit 1; done &&
            ln -sf redis-check-rdb usr/bin/redis-server &&
            libraries=$(dirname "$PWD"/usr/lib/*/liblzf.so.1) &&
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/redis-server "$@"\n' "$libraries" "$PWD" >../bin/redis-server &&
            chmod +x ../bin/redis-server && ../bin/redis-server --version >/dev/null
    ) || complain "no Redis"
fi
[ "$complete" = no ] || printf '%s' "$wanted" >"$mark"
