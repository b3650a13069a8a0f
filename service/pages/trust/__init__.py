"""The pages about trust: bindings, explanations of tokens, and rejected subjects."""
