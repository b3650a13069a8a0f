"""What every endpoint shares: reading requests, writing answers, telling them apart in logs."""
