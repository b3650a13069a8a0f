"""What every room uses: settings, clock, ids, threads, errors, rules for text."""
