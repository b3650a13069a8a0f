"""Signs command lines in: the device authorization grant (RFC 8628)."""
