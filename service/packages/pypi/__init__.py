"""The simple repository API of PyPI: reading an upstream's pages, and serving clients."""
