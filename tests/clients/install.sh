#!/bin/sh
# Sets up the package managers that tests/clients installs with, in the folder $1 (.clients), from
# the registries that this machine has configured: no host stands here. It does nothing if they are
# there already. PYTHON is the Python to use.
set -eu

folder=${1:-.clients}
here=$(dirname "$0")
stamp="$folder/installed"

if [ -e "$stamp" ] && [ "$stamp" -nt "$0" ] && [ "$stamp" -nt "$here/node-clients.json" ]; then
    exit 0
fi
echo "installing the package managers of tests/clients into $folder"
mkdir -p "$folder"
rm -f "$stamp"
"${PYTHON:-python3}" -m venv --clear "$folder/python"
"$folder/python/bin/pip" install --quiet --disable-pip-version-check \
    'pip>=26,<27' 'uv>=0.13,<0.14' 'poetry>=2.5,<3'
if command -v npm >/dev/null 2>&1; then
    # A project of its own, because yarn 1 and yarn 4 both install a command `yarn`; they are
    # started by their files. No script of theirs has to run.
    mkdir -p "$folder/node"
    cp "$here/node-clients.json" "$folder/node/package.json"
    npm install --prefix "$folder/node" --silent --no-audit --no-fund --ignore-scripts
else
    echo "no npm on this machine: tests of npm, pnpm and yarn will be skipped" >&2
fi
touch "$stamp"
