"""Asks a backend of Sigma: FILE of rows, then rules as JSON on standard input; ids that match."""

import json
import sys

import duckdb
from sigma.collection import SigmaCollection
from sigma_backend_duckdb import DuckDBBackend

connection = duckdb.connect()
connection.execute(
    f"CREATE VIEW events AS SELECT * FROM read_csv('{sys.argv[1]}', all_varchar=true)"
)
answers = []
for rule in json.load(sys.stdin):
    (statement,) = DuckDBBackend().convert(SigmaCollection.from_yaml(rule))
    condition = statement[statement.upper().index(" WHERE ") :]
    rows = connection.execute(f"SELECT id FROM events {condition}").fetchall()
    answers.append(sorted(row[0] for row in rows))
print(json.dumps(answers))
