"""`cloakwork demo ..`: what each demonstration shows, and the encrypted run in two processes that they share."""
