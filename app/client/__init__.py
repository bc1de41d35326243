"""The client of the scoring service: makes keys, encrypts, asks a server to compute, decrypts. Needs the extra `client`."""

from cloakwork.app.client.client import AsyncClient, Client
from cloakwork.app.client.scores import Scores

__all__ = ["AsyncClient", "Client", "Scores"]
