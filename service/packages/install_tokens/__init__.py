"""Install tokens, with which a CI job installs: issued in exchange for its CI token."""
