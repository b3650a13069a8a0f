#!/bin/sh
# Sets up what tests/engines reads the open table with, and judges Sigma rules with, each in a virtual
# environment of its own below the folder $1 (.engines), from the registry that this machine has
# configured: no host stands here. Further arguments name engines; default: all of them, which takes
# about 3 GB. What is there already is left as it is. PYTHON is the Python to use.
set -eu

folder=${1:-.engines}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- duckdb chdb sail daft spark sigma

packages_of() {
    case $1 in
    # The extensions come as packages, because DuckDB's own server may be out of reach. There are
    # none for DuckDB 2.0, which Countersign itself uses.
    duckdb) echo duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-delta==1.5.5 \
        duckdb-extension-avro==1.5.5 duckdb-extension-httpfs==1.5.5 pytz pyarrow ;;
    chdb) echo 'chdb>=4.4,<5' pyarrow ;;
    sail) echo 'pysail>=0.7.2,<0.8' 'pyspark-client==4.1.3' ;;
    daft) echo 'daft>=0.7.26,<0.8' 'ray>=2.60,<2.61' 'pyiceberg>=0.12,<0.13' 'deltalake>=1.6,<1.7' ;;
    spark) echo pyspark==3.5.9 ;;
    sigma) echo pysigma-backend-duckdb==0.1.4 duckdb==1.5.5 pytz ;;
    *) echo "no such engine: $1" >&2; exit 2 ;;
    esac
}

# Packages that are installed for the jars inside them, and not for what they depend on: the Iceberg
# runtime for Spark 3.5, and Hadoop's client for S3 with Amazon's SDK.
jars_of() {
    if [ "$1" = spark ]; then
        echo snowpark-connect-deps-iceberg==1.0.1 bodo-iceberg-connector==2026.10
    fi
}

mkdir -p "$folder"
for engine in "$@"; do
    packages=$(packages_of "$engine")
    jars=$(jars_of "$engine")
    stamp="$folder/$engine/installed"
    [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$packages${jars:+ $jars}" ] && continue
    if [ "$engine" = spark ] && ! command -v java >/dev/null 2>&1; then
        echo "no java on this machine: tests of Spark will be skipped" >&2
        continue
    fi
    echo "installing $engine into $folder/$engine"
    "${PYTHON:-python3}" -m venv --clear "$folder/$engine"
    # shellcheck disable=SC2086
    "$folder/$engine/bin/pip" install --quiet --disable-pip-version-check $packages
    # shellcheck disable=SC2086
    [ -z "$jars" ] ||
        "$folder/$engine/bin/pip" install --quiet --disable-pip-version-check --no-deps $jars
    if [ "$engine" = duckdb ]; then
        # Where DuckDB looks for what it has downloaded, with this folder as the home.
        find "$folder/duckdb/lib" -path '*/extensions/v*' -name '*.duckdb_extension' |
            while read -r file; do
                version=$(basename "$(dirname "$file")")
                target="$folder/duckdb/home/.duckdb/extensions/$version/linux_amd64"
                mkdir -p "$target"
                cp "$file" "$target/"
            done
    fi
    echo "$packages${jars:+ $jars}" >"$stamp"
done
