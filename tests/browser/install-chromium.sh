#!/bin/sh
# Makes sure that a Chromium is there for the browser tests: Debian's, if apt may install it.
set -eu

if command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium for the browser tests"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null
    exit 0
fi
echo "no chromium, and no right to install it: browser tests will be skipped" >&2
