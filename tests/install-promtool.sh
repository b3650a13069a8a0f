#!/bin/sh
# Makes sure that a promtool is there for tests of metrics and alerts: Debian's, in the folder $1 if
# there is none on the PATH. Of its package, only this program is taken: no Prometheus is installed.
set -eu

bin=$(realpath "$1")
if command -v promtool >/dev/null 2>&1 || [ -x "$bin/promtool" ]; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
    echo "fetching promtool for tests"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    fetch() {
        apt-get -qq -o APT::Sandbox::User=root download prometheus 2>/dev/null
    }
    fetch || { [ "$(id -u)" -eq 0 ] && apt-get update -qq && fetch; } || true
    if [ -e prometheus_*.deb ] && dpkg-deb -x prometheus_*.deb . && install -m 0755 usr/bin/promtool "$bin/"; then
        exit 0
    fi
fi
echo "no promtool, and none from Debian's package prometheus: tests of metrics and alerts will fail" >&2
