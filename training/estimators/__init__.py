"""The classes of `cloakwork.estimators`, a module for each family."""
