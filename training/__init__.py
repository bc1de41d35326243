"""Recipes that train the models of the zoo. Nothing that runs encrypted models needs this package."""
