#!/bin/sh
# Sets up the verifiers of proofs that were not written here, in the folder $1 (.verifiers): verify.go,
# with Debian's golang-go and golang-golang-x-mod-dev, and the packages aics-tlog and aics-witness in a
# virtual environment with a Python of 3.12 or newer, from the registry that this machine has
# configured: no host stands here. What cannot be set up is told, and its tests are skipped.
set -eu

folder=${1:-.verifiers}
here=$(dirname "$0")
packages='aics-tlog==0.2.1 aics-witness==0.1.0'
gopath=/usr/share/gocode
mkdir -p "$folder"
folder=$(realpath "$folder")

if ! command -v go >/dev/null 2>&1 || [ ! -d "$gopath/src/golang.org/x/mod/sumdb/tlog" ]; then
    echo "no golang-go with golang-golang-x-mod-dev: tests of Go's verifier will be skipped" >&2
elif [ ! -e "$folder/verify-go" ] || [ "$here/verify.go" -nt "$folder/verify-go" ]; then
    echo "building Go's verifier in $folder"
    GO111MODULE=off GOPATH=$gopath GOCACHE="$folder/go-cache" go build -o "$folder/verify-go" "$here/verify.go"
fi

stamp="$folder/aics/installed"
[ -e "$stamp" ] && [ "$(cat "$stamp")" = "$packages" ] && exit 0
for python in python3.14 python3.13 python3.12 python3 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
        echo "installing aics-tlog and aics-witness in $folder"
        "$python" -m venv --clear "$folder/aics"
        # shellcheck disable=SC2086
        "$folder/aics/bin/pip" install --quiet --disable-pip-version-check $packages
        echo "$packages" >"$stamp"
        exit 0
    fi
done
echo "no Python 3.12 or newer: tests of aics-tlog and aics-witness will be skipped" >&2
