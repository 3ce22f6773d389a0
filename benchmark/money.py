"""Amounts of money as people read them."""

from __future__ import annotations


def dollars(amount: float) -> str:
    """Returns an amount of money for people to read: in cents, or finer where it is less than one."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.1g}"
