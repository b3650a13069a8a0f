"""The pages of trust: bindings, why a token is trusted or not, and who was turned away."""
