"""Install tokens: what a CI job installs with, got in exchange for its CI token."""
