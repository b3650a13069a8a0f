#!/bin/sh
# Sets up receivers of rows that were not written here, in the folder $1 (.receivers): Tenzir, a SIEM engine,
# and rotel, a collector of OpenTelemetry, from PyPI; rsyslog of Debian's packages, of which only the
# files are taken; standardwebhooks from npm. All from the registries that this machine has
# configured: no host stands here. What cannot be set up is told, and its tests are skipped.
set -eu

folder=${1:-.receivers}
packages='tenzir==6.20.0 rotel==0.0.1a15 opentelemetry-proto==1.45.2'
mkdir -p "$folder"
folder=$(realpath "$folder")

stamp="$folder/python/installed"
if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$packages" ]; then
    echo "installing $packages in $folder"
    python3 -m venv --clear "$folder/python"
    # shellcheck disable=SC2086
    if "$folder/python/bin/pip" install --quiet --disable-pip-version-check $packages; then
        echo "$packages" >"$stamp"
    else
        echo "no Tenzir and rotel: their tests will be skipped" >&2
    fi
fi

if [ ! -e "$folder/rsyslog/usr/lib/x86_64-linux-gnu/rsyslog/imrelp.so" ] && command -v apt-get >/dev/null 2>&1; then
    echo "fetching rsyslog in $folder"
    mkdir -p "$folder/rsyslog"
    cd "$folder/rsyslog"
    for package in rsyslog rsyslog-openssl rsyslog-relp librelp0 libestr0 libfastjson4; do
        apt-get -qq -o APT::Sandbox::User=root download "$package" 2>/dev/null || true
    done
    for file in *.deb; do
        [ -e "$file" ] && dpkg-deb -x "$file" . && rm "$file"
    done
    [ -x usr/sbin/rsyslogd ] || echo "no rsyslog: its tests will be skipped" >&2
fi

if [ ! -d "$folder/npm/node_modules/standardwebhooks" ] && command -v npm >/dev/null 2>&1; then
    echo "installing standardwebhooks of npm in $folder"
    mkdir -p "$folder/npm"
    cd "$folder/npm"
    npm install --silent --no-fund --no-audit standardwebhooks@1.1.1 ||
        echo "no standardwebhooks: its test will be skipped" >&2
fi
