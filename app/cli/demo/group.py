"""`cloakwork demo mnist|cifar10|iris|lookup|web|..`: demonstrations; each encrypts, lets a server without the key compute, decrypts and compares."""

from __future__ import annotations

import typer

from cloakwork.app.cli.demo import cifar10, lookup, mnist, tabular, web

app = typer.Typer(
    help="Demonstrations that encrypt, compute without the key, decrypt and compare.", no_args_is_help=False
)
app.command("mnist")(mnist.mnist)
app.command("cifar10")(cifar10.cifar10)
app.command("lookup")(lookup.lookup)
tabular.register(app)
app.command("web")(web.web)
