"""Pages and endpoints of signing in and out: providers, passkeys, links, devices."""
