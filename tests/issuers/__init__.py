"""CI identity providers for tests: real keys, real signatures, and every way to misbehave."""
