#!/bin/sh
# Runs a command in .venv with nothing of the caller's environment but what is named here: `scripts/isolated.sh COMMAND...`.
#
# So tests, demo and benchmarks do the same for everybody: no SEGLOG_*, AWS_*, SPARK_*, PYTHON*, proxy or pytest setting
# leaks in, and neither do the AWS files of the home directory. An allow-list, because a deny-list is never complete.
# Spark needs to be told its workers' Python, and an address that needs no name lookup.
set -eu
unset CDPATH
root=$(cd "$(dirname "$0")/.." && pwd)
exec env -i \
    PATH="$root/.venv/bin:$PATH" \
    ${HOME:+"HOME=$HOME"} ${USER:+"USER=$USER"} ${LOGNAME:+"LOGNAME=$LOGNAME"} ${TMPDIR:+"TMPDIR=$TMPDIR"} \
    ${TERM:+"TERM=$TERM"} ${COLUMNS:+"COLUMNS=$COLUMNS"} ${NO_COLOR:+"NO_COLOR=$NO_COLOR"} \
    ${LANG:+"LANG=$LANG"} ${LC_ALL:+"LC_ALL=$LC_ALL"} ${LC_CTYPE:+"LC_CTYPE=$LC_CTYPE"} \
    ${JAVA_HOME:+"JAVA_HOME=$JAVA_HOME"} ${CI:+"CI=$CI"} \
    ${SEGLOG_TEST_SEED:+"SEGLOG_TEST_SEED=$SEGLOG_TEST_SEED"} \
    AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true \
    PYSPARK_PYTHON="$root/.venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 \
    "$@"
