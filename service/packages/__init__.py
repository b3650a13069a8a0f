"""Install policy, blocklist and install proxy."""
