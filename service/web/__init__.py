"""How endpoints are declared: requests, answers, refusals, the OpenAPI document."""
