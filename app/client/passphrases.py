"""Strength of passphrases: refuses those that are too easy to guess."""

from __future__ import annotations

import os
from typing import Final

from cloakwork.app.client.errors import WeakPassphraseError

WEAK_VARIABLE: Final = "CLOAKWORK_WEAK_PASSPHRASE"
_FEWEST_CHARACTERS: Final = 12
_FEWEST_DIFFERENT: Final = 5
_LONGEST_PERIOD: Final = 16  # of a text that repeats itself
_LONGEST_LOOK: Final = 100  # characters that are looked for words
_SHORTEST_RUN: Final = 3  # of keys side by side that count as one
_RUNS: Final = (
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop",
    "qwertzuiop",
    "asdfghjkl",
    "zxcvbnm",
    "yxcvbnm",
    "azerty",
    "1q2w3e4r5t6y",
)
_PLAIN: Final = str.maketrans("013457@$!", "oieastasi")

# What guessing begins with: words that people take, in the form of `_letters`.
_WORDS: Final = """
    abracadabra access account admin administrator alexander america amanda andrea andrew angel anonymous apple april arsenal august austin
    autumn baby bailey banana barcelona baseball basketball batman beautiful berlin biteme blink blue buster butterfly carlos changeme charlie
    cheese chelsea chicago chocolate christmas cloakwork computer cookie correct correcthorsebatterystaple cowboys daniel david december default
    diamond dolphin donald dragon eagles elephant encrypted encryption england eminem family fender ferrari flower football forever freedom
    friday friend friends fuckyou gandalf garfield george ginger google guest hannah happy harley heaven hello helloworld hockey hottie
    house hunter iceman idontknow iloveyou jackson jasmine jennifer jessica jesus johnson jordan joshua justin key killer king kitty
    lakers letmein liverpool login london love lovely loveyou lucky madison maggie manchester manager march martin master matrix matthew
    maverick melissa mercedes merlin michael michelle mickey midnight monday monkey monster morgan mother mustang mypassword myspace
    mysecret naruto nicole ninja november october office orange pass passphrase password passwort pepper phoenix player please pokemon
    princess private purple queen rainbow ranger rangers robert root samantha samsung saturday scooter secret secretkey security september
    server service shadow silver slipknot snoopy soccer sophie spiderman starwars steelers stephanie summer sunday sunflower sunshine
    superman superstar support sweet system taylor temp temppassword test tester testing thomas thunder tigger tinkerbell trustno trustnoone
    turtle twitter unknown user username vanessa victoria welcome whatever william windows winner winter wizard world yankees yellow zaq
    my our the this is new old one two for a i me you
"""
_COMMON: Final = frozenset(_WORDS.split())


def weakness(passphrase: str) -> str | None:
    """Says why a passphrase is weak; None: it is not. nothing of it is in the text."""
    if len(passphrase) < _FEWEST_CHARACTERS:
        return f"it has fewer than {_FEWEST_CHARACTERS} characters"
    if len(set(passphrase)) < _FEWEST_DIFFERENT:
        return f"it has fewer than {_FEWEST_DIFFERENT} different characters"
    if any(
        passphrase == (passphrase[:n] * len(passphrase))[: len(passphrase)]
        for n in range(1, min(_LONGEST_PERIOD, len(passphrase) // 2) + 1)
    ):
        return "it repeats itself"
    rest = _without_runs(passphrase[:_LONGEST_LOOK].lower())
    if len(set(rest)) < _FEWEST_DIFFERENT and len(rest) < _FEWEST_CHARACTERS:
        return "it is a row of keys or numbers"
    if _is_of_common_words(_letters(passphrase[:_LONGEST_LOOK].lower())) or _is_of_common_words(_letters(rest)):
        return "it is made of words that are guessed first"
    return None


def check_passphrase(passphrase: str) -> None:
    """Raises WeakPassphraseError for one that is too easy to guess, unless the environment says CLOAKWORK_WEAK_PASSPHRASE=1."""
    reason = None if os.environ.get(WEAK_VARIABLE) == "1" else weakness(passphrase)
    if reason is not None:
        raise WeakPassphraseError(
            f"passphrase: {reason}, and whoever gets the file of the secret key can guess it; take four or more words that have nothing to do "
            f"with each other, or set {WEAK_VARIABLE}=1 where nothing secret is encrypted"
        )


def _letters(text: str) -> str:
    """Keep only letters, with the usual digits and signs in place of letters read as these."""
    stripped = text.strip("0123456789!?.,-_ #*+$&%")
    return "".join(letter for letter in stripped.translate(_PLAIN) if letter.isalpha())


def _is_of_common_words(text: str) -> bool:
    """At most three of them, one after the other."""
    return bool(text) and any(text in ends for ends in _joined(text))


def _joined(text: str) -> list[set[str]]:
    """Returns the beginnings of a text that are one, two or three common words."""
    reached = {""}
    beginnings = []
    for _ in range(3):
        reached = {
            text[: len(start) + length]
            for start in reached
            for length in range(1, len(text) - len(start) + 1)
            if text[len(start) : len(start) + length] in _COMMON
        }
        beginnings.append(reached)
    return beginnings


def _without_runs(text: str) -> str:
    """Without keys that are side by side, forwards or backwards."""
    rows = [*_RUNS, *(row[::-1] for row in _RUNS)]
    rest, place = [], 0
    while place < len(text):
        length = max(
            (
                n
                for row in rows
                for n in range(_SHORTEST_RUN, len(row) + 1)
                if text[place : place + n] in row and place + n <= len(text)
            ),
            default=0,
        )
        rest.append("" if length else text[place])
        place += length or 1
    return "".join(rest)
