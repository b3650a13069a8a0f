"""The audit log: taking rows in, keeping them, reading them back, taking them away."""
