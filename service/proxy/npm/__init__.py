"""The npm registry API: what an upstream says, and what clients are served."""
