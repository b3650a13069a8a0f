"""What all endpoints share: reading requests, writing responses, identifying them in logs."""
