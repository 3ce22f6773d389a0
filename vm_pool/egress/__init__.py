"""Internet access of a guest, where it has any: only to public addresses, and only to the hosts that its policy allows.

`policy` decides which hosts, and `addresses` which of their addresses. `dns_answers` answers the guest's DNS with
stand-in addresses, so that a name is resolved here, when a connection is made. `relay` makes the connections; `exits`
leads the traffic of a guest's network namespace to it. Only TCP and DNS get through.

`http_transport` limits this machine's own requests to the same addresses, where a task or a page chooses the URL.
"""

from vm_pool.egress.policy import NetworkPolicy, PolicyText, parse_policy

__all__ = ["NetworkPolicy", "PolicyText", "parse_policy"]
