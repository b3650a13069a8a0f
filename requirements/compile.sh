#!/bin/sh
# Writes the files beside this one: each pinned version with the hashes of all its files at the package index.
# service.txt is what the service needs and what builds it; each other file is what an extra adds to it.
set -eu
uv=${1:?path of uv}
cd "$(dirname "$0")/.."

compile() { # FILE, then arguments of uv
    file=requirements/$1
    shift
    rm -f "$file" # uv would keep versions that it names
    "$uv" pip compile --quiet --universal --python-version 3.11 --constraints constraints.txt \
        --generate-hashes --only-binary :all: --emit-build-options \
        --no-emit-package colorama --no-emit-package pywin32 --no-emit-package httpx2-jsfetch `# of Windows and of browsers` \
        --no-annotate --no-emit-index-url --no-emit-find-links \
        --custom-compile-command 'make hashes' --output-file "$file" "$@"
}

compile uv.txt - <<NAMES
uv
NAMES
compile service.txt pyproject.toml - <<NAMES
setuptools
setuptools-scm
NAMES
without() { # FILES whose packages another file need not name
    sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package=\1/p' "$@"
}
has=$(without requirements/service.txt)
for extra in postgres s3 lake sigma sigstore dev; do
    compile "$extra.txt" pyproject.toml --extra "$extra" $has
done
compile mcp.txt pyproject.toml --extra mcp $has $(without requirements/dev.txt)
compile sbom.txt - <<NAMES
cyclonedx-bom
NAMES
compile bench.txt pyproject.toml --extra bench $has
# It works without the pandas it asks for; and with pandas there, pyarrow would use it.
compile chdb.txt - --no-deps <<NAMES
chdb-core
NAMES
