#!/bin/sh
# Writes the bill of materials (CycloneDX) of the service with all its extras, as they are installed. With an archive of
# OSV records it compares the two: the exit code is 1 if a record names a package.
set -eu
bin=$(cd "${1:?folder of the programs}" && pwd)
out=$(realpath "${2:?file to write}")
osv=${3:+$(realpath "$3")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$(dirname "$0")/.."

environment() { # NAME, then files of this folder: a new virtual environment with what they name
    name=$1
    shift
    "$bin/uv" venv --quiet --python "$bin/python" "$work/$name"
    for file; do
        "$bin/uv" pip install --quiet --python "$work/$name/bin/python" --no-deps --require-hashes -r "requirements/$file"
    done
}

environment service service.txt postgres.txt s3.txt lake.txt
environment tool sbom.txt
version=$("$bin/countersign" --version | sed 's/.* //')
sed "s/^dynamic = .*/version = \"$version\"/" pyproject.toml > "$work/pyproject.toml"
"$work/tool/bin/cyclonedx-py" environment --pyproject "$work/pyproject.toml" --mc-type application \
    --output-reproducible --output-file "$out" "$work/service/bin/python"
echo "$out: what Countersign $version consists of"

if [ -n "$osv" ]; then
    export COUNTERSIGN_DATA_DIR="$work/data"
    "$bin/countersign" init > /dev/null
    # 4: some records could not be read, and were named.
    "$bin/countersign" blocklist import --ids '*' "$osv" || [ $? -eq 4 ]
    "$bin/countersign" blocklist check "$out"
fi
