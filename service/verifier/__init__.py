"""CI tokens: read, judged by seven rules, explained, and turned into attribution."""
