"""The audit log: sealing it into segments, reading it back, taking it away."""
