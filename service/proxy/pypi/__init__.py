"""The simple repository API of PyPI: what an upstream says, and what clients are served."""
