"""Linear models as programs without bootstraps."""
