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
pip="$folder/python/bin/pip"
"${PYTHON:-python3}" -m venv --clear "$folder/python"
"$pip" install --quiet --disable-pip-version-check 'pip>=26,<27' 'uv>=0.13,<0.14' 'poetry>=2.5,<3'
# Apart from those, because they share libraries with them in other versions.
# pdm 2.29 does not run with hishel 2.
for clients in 'pdm>=2.29,<3 hishel<2' 'pipx>=1.18,<2'; do
    name=${clients%%>*}
    "${PYTHON:-python3}" -m venv --clear --without-pip "$folder/$name"
    # Unquoted: several requirements.
    "$pip" --quiet --disable-pip-version-check --python "$folder/$name" install $clients
done
# Versions of pip that distributions have; they are started by their folders.
for version in 23.2.1 24.0; do
    rm -rf "$folder/pip-$version"
    "$pip" install --quiet --disable-pip-version-check --no-deps \
        --target "$folder/pip-$version" "pip==$version"
done
# pipx installs one of its own, from the index that it is pointed at.
mkdir -p "$folder/wheels"
"$pip" download --quiet --disable-pip-version-check --no-deps --dest "$folder/wheels" 'pip>=26.1,<27'
if command -v npm >/dev/null 2>&1; then
    # A project of its own, because several of them install a command of the same name; they are
    # started by their files. No script of theirs has to run. npm 12 and corepack need a newer Node
    # than some machines have: one is among them, and is left out where it does not run.
    mkdir -p "$folder/node"
    cp "$here/node-clients.json" "$folder/node/package.json"
    npm install --prefix "$folder/node" --silent --no-audit --no-fund --ignore-scripts
else
    echo "no npm on this machine: tests of npm, pnpm, yarn and bun will be skipped" >&2
fi
touch "$stamp"
