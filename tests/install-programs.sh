#!/bin/sh
# Makes sure that promtool and nginx are there for tests, in the folder $1 if they are not on the PATH.
# Of Debian's packages, only the programs are taken: no service is installed or started.
set -eu

bin=$(realpath "$1")

fetch() {
    apt-get -qq -o APT::Sandbox::User=root download "$1" 2>/dev/null
}

# add PROGRAM PACKAGE PATH: the file PATH of Debian's PACKAGE
add() {
    if command -v "$1" >/dev/null 2>&1 || [ -x "$bin/$1" ]; then
        return
    fi
    if command -v apt-get >/dev/null 2>&1; then
        echo "fetching $1 for tests"
        folder=$(mktemp -d)
        if (
            cd "$folder"
            fetch "$2" || { [ "$(id -u)" -eq 0 ] && apt-get update -qq && fetch "$2"; }
            dpkg-deb -x "$2"_*.deb . && install -m 0755 "$3" "$bin/"
        ); then
            rm -rf "$folder"
            return
        fi
        rm -rf "$folder"
    fi
    echo "no $1, and none from Debian's package $2: tests that need it will fail or be skipped" >&2
}

add promtool prometheus usr/bin/promtool
add nginx nginx usr/sbin/nginx
