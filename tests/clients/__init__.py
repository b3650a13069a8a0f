"""Real package managers that install through a real server from a registry on loopback."""
