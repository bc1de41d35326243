"""Administration of all tenants."""
