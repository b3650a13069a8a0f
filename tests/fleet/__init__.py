"""A fleet on one machine: PostgreSQL, an S3 server, and nodes behind a balancer, all real."""
