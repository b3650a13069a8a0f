"""How the optional parts of the service are installed: from its checkout, never from an index."""


def how_to_install(extra: str) -> str:
    """What to do to get the extra `extra`, as the end of a sentence.

    With the pinned files; the name of the product is that of another project on the index.
    """
    files = f"requirements/{extra}.txt"
    return f"run `.venv/bin/pip install --no-deps --require-hashes -r {files}` in the checkout"
