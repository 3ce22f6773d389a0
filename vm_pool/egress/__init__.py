"""The way out of a guest, where it has one: only to public addresses, and only to the hosts that it may reach.

`policy` says which hosts; `addresses` which of their addresses; `names` answers the guest's DNS with addresses that stand for
names, so that what a name means is decided here, when a connection is made; `relay` makes the connections; `exits` puts a guest's
network namespace in front of it. Nothing but TCP and DNS gets through.

`http_transport` keeps this machine's own requests to the same addresses, where a task or a page says where they go.
"""

from vm_pool.egress.policy import NetworkPolicy, PolicyText, parse_policy

__all__ = ["NetworkPolicy", "PolicyText", "parse_policy"]
