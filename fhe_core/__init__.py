"""The TFHE engine: exact, batched bootstrapping with the same integers on every back end.

`parameters` the shipped sets · `client` keys, encryption, decryption (secret side) · `server` sessions on evaluation keys (public side) ·
`ciphertexts` arrays of ciphertexts · `gates` Boolean gates · `errors` the error tree. The formats are in docs/reference/wire_format.md.

This file imports nothing: the evaluating side must be loadable without the secret side.
"""
