"""What the owner of the service sees of all tenants, and does."""
