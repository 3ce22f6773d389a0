"""VM providers: one module for each kind, found by name through the entry points `vm_pool.providers`."""

from vm_pool.providers.base import Provider, check_available, load_provider, provider_names

__all__ = ["Provider", "check_available", "load_provider", "provider_names"]
