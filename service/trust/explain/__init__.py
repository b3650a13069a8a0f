"""Explains why a CI token is or is not trusted, and which binding would make it trusted."""
