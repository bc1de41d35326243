"""Tenants: authentication, permissions, usage."""
