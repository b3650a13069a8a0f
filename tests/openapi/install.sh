#!/bin/sh
# Sets up the validators and generators of tests/openapi that are not in the virtual environment, in
# the folder $1 (.openapi), from the npm registry that this machine has configured: no host stands
# here. It does nothing if they are there already.
set -eu

folder=${1:-.openapi}
here=$(dirname "$0")
stamp="$folder/installed"

if [ -e "$stamp" ] && [ "$stamp" -nt "$0" ] && [ "$stamp" -nt "$here/node-tools.json" ]; then
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "no npm on this machine: tests of OpenAPI tools from npm will be skipped" >&2
    exit 0
fi
echo "installing the tools of tests/openapi into $folder"
mkdir -p "$folder"
rm -f "$stamp"
cp "$here/node-tools.json" "$folder/package.json"
# No script of theirs has to run.
npm install --prefix "$folder" --silent --no-audit --no-fund --no-package-lock --ignore-scripts
touch "$stamp"
