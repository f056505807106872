"""The authority's client side: filing and disputing, receipts checked offline, a log watched."""

from nsmark.authority.client.client import AuthorityClient, Registered
from nsmark.authority.client.monitor import Alert, Look, Monitor, Watch
from nsmark.authority.client.reader import GivenReceipt
from nsmark.authority.client.trust import TrustedAuthority, TrustStore

__all__ = [
    "Alert",
    "AuthorityClient",
    "GivenReceipt",
    "Look",
    "Monitor",
    "Registered",
    "TrustStore",
    "TrustedAuthority",
    "Watch",
]
