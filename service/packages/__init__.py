"""Names, versions and releases of packages, by the rules of their own ecosystems. No I/O."""
