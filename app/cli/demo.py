"""`cloakwork demo mnist|iris|lookup|..`: demonstrations; each encrypts, lets a server without the key compute, decrypts and compares."""

from __future__ import annotations

import typer

from cloakwork.app.cli import demo_lookup, demo_mnist, demo_tabular

app = typer.Typer(
    help="Demonstrations that encrypt, compute without the key, decrypt and compare.", no_args_is_help=False
)
app.command("mnist")(demo_mnist.mnist)
app.command("lookup")(demo_lookup.lookup)
demo_tabular.register(app)
