"""Alert rules over the audit log: what they watch, when they fire, and what becomes of a firing."""
