"""`python -m cloakwork.app.cli` is the `cloakwork` command."""

from cloakwork.app.cli.main import main

main()
