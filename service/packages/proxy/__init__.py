"""The install proxy: speaks the protocols of PyPI and npm, decides and records each install."""
