"""The install proxy: packages of an upstream registry, decided, recorded and cached."""
