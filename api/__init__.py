"""The scoring service: encrypted inference over HTTP."""
