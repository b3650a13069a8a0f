"""Seeded mutants: small wrong changes of core modules, which their tests have to notice."""
