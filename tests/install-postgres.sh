#!/bin/sh
# Makes sure that a PostgreSQL 15 is there for tests and benchmarks: Debian's, if apt may install it.
set -eu

if [ -x /usr/lib/postgresql/15/bin/initdb ]; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing postgresql-15 for tests and benchmarks"
    apt-get update -qq
    # Only programs: no cluster of the system's own is made and none is started.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql-15 >/dev/null &&
        exit 0
fi
echo "no PostgreSQL 15, and no right to install it: tests on PostgreSQL will fail, and benchmarks leave it out" >&2
