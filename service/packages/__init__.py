"""Package names, versions and releases, by the rules of each ecosystem. No I/O."""
