"""The pages about evidence: exports and their receipts, and who could do what."""
