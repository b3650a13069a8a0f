"""Reports about an organisation, reconstructed from what is stored and from its audit rows."""
