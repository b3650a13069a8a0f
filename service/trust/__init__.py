"""Trust bindings, and why a token was rejected."""
