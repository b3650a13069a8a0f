"""Which CI jobs an organisation trusts, and why a token was rejected."""
