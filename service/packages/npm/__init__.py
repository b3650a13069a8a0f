"""The npm registry API: reading an upstream's documents, and serving clients."""
