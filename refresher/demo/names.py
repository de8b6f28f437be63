"""Human-like names for generated persons: unique, and the same at every run."""

from __future__ import annotations

_GIVEN_NAMES = """
    Ada Alan Amara Aiko Barbara Chidi Claude Dana Donald Edsger Elena Emeka Fatima Frances Grace Hana Hedy Ines Ivan
    Jamal Jean John Joan Kamala Katherine Kofi Leila Linus Lucia Mateo Margaret Mei Nadia Niklaus Olga Omar Priya
    Radia Rosa Ruth Sofia Tim Uma Vint Wanda Yusuf Zainab
"""
_FAMILY_NAMES = """
    Abara Allen Bauer Berg Castro Chen Dahl Diallo Eze Fischer Garcia Goldberg Haddad Hoffmann Ibrahim Ivanova Jansen
    Johnson Kaya Kim Kovacs Lamar Lopez Mensah Moreau Murphy Nakamura Novak Nwosu Okafor Olsen Patel Perez Quispe
    Rossi Sato Silva Singh Tanaka Torres Ueda Vargas Wagner Weber Xu Yilmaz Zhang
"""
_GIVEN = tuple(_GIVEN_NAMES.split())
_FAMILY = tuple(_FAMILY_NAMES.split())


def person_name(number: int) -> str:
    """Return the name of the person of that number (>= 0): "Ada Okafor 00042". The number makes it unique."""
    family, given = divmod(number, len(_GIVEN))
    # A step of 17, which is coprime to the list's length, keeps neighbours from sharing a family name.
    return f"{_GIVEN[given]} {_FAMILY[(family + 17 * given) % len(_FAMILY)]} {number:05}"
