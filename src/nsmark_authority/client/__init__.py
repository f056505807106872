"""The authority's client side: filing and disputing, receipts checked offline, a log watched."""

from nsmark_authority.client.client import AuthorityClient, Registered
from nsmark_authority.client.monitor import Alert, Look, Monitor, Watch
from nsmark_authority.client.reader import GivenReceipt
from nsmark_authority.client.trust import TrustedAuthority, TrustStore

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
