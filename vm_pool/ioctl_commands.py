"""Commands of `ioctl` that every filter of system calls refuses, for guests and for other confined code."""

from __future__ import annotations

import errno
from collections.abc import Mapping

_LINE_DISCIPLINE = 0x5423
"""TIOCSETD."""
_OF_SOCKETS = (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1)
"""SIOCGIFBR, SIOCSIFBR (bridges), SIOCADDDLCI, SIOCDELDLCI (Frame Relay, before Linux 5.15), SIOCGIFVLAN, SIOCSIFVLAN (VLANs),
SIOCBRADDBR, SIOCBRDELBR (bridges).
"""

REFUSED: Mapping[int, int] = {_LINE_DISCIPLINE: errno.EINVAL} | dict.fromkeys(_OF_SOCKETS, errno.ENOTTY)
"""The error of each command for which the host would load a module before it asks for any right: what a kernel says that lacks
the line discipline, or does not know the command.
"""
