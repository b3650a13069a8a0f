#!/bin/sh
# Installs the proxies that bench_proxy compares with into the folder $1 (.peers), and the package
# managers it installs with into $CLIENTS, from the registries that this machine has configured. What
# cannot be installed is named, and will be missing from the comparison.
set -u

folder=${1:-.peers}
python=${PYTHON:-python3}
here=$(dirname "$0")

missing() {
    echo "$1 cannot be installed: it will be missing from the comparison" >&2
}

mkdir -p "$folder/verdaccio"
if [ ! -x "$folder/devpi/bin/devpi-server" ]; then
    echo "installing devpi-server to compare with"
    { "$python" -m venv --clear "$folder/devpi" &&
        "$folder/devpi/bin/pip" install --quiet --disable-pip-version-check 'devpi-server>=6.20,<7'; } ||
        missing devpi
fi
if [ ! -e "$folder/verdaccio/node_modules/verdaccio" ]; then
    echo "installing verdaccio to compare with"
    # It asks for node-fetch by a tag that some mirrors do not have.
    cat >"$folder/verdaccio/package.json" <<'JSON'
{"private": true, "dependencies": {"verdaccio": "^6.8.0"}, "overrides": {"node-fetch": "^2.6.7"}}
JSON
    npm install --prefix "$folder/verdaccio" --silent --no-audit --no-fund --ignore-scripts ||
        missing Verdaccio
fi
PYTHON=$python sh "$here/../tests/clients/install.sh" "${CLIENTS:-.clients}" ||
    missing "the package managers"
