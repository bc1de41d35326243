"""`cloakwork demo mnist|cifar10|iris|lookup|web|..`: demonstrations; each encrypts, lets a server without the key compute, decrypts and compares."""

from __future__ import annotations

from cloakwork.app.cli.demo import cifar10, lookup, mnist, tabular, web
from cloakwork.app.cli.shared.program import Program

app = Program("Run a demonstration of encrypted inference.")
app.command("mnist")(mnist.mnist)
app.command("cifar10")(cifar10.cifar10)
app.command("lookup")(lookup.lookup)
tabular.register(app)
app.command("web")(web.web)
