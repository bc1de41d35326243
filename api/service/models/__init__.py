"""Models that are served: their versions, and the tenants that may use them."""
