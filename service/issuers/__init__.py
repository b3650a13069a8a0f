"""CI identity providers: which are accepted, where their keys are, and which keys may verify."""
