"""``nsmark client``: everything that is done with an authority, from the outside."""

from __future__ import annotations

import click

from nsmark_authority.cli.client.checking import check_receipt
from nsmark_authority.cli.client.owning import (
    answer,
    deposit,
    digest,
    dispute,
    file_key,
    register,
    withdraw,
)
from nsmark_authority.cli.client.reading import (
    claim,
    log,
    pool,
    receipt,
    report,
    ruling,
    search,
    status,
    token,
    wait,
)
from nsmark_authority.cli.client.trusting import trust
from nsmark_authority.cli.client.watching import monitor


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands as they were added."""
        return list(self.commands)


@click.group("client", cls=OrderedGroup, no_args_is_help=False)
def command() -> None:
    """File keys with an authority, dispute, check receipts, watch the log.

    \b
    Example:
      nsmark client trust https://authority.example
      nsmark client register --identity alice.pem --owner "Alice"
      nsmark client file owner.nsmark --identity alice.pem
      nsmark client check-receipt owner.nsmark.receipt --key owner.nsmark
    """


_COMMANDS = (
    (trust, "Trust an authority, after comparing its fingerprint."),
    (register, "Register your public key and get a token."),
    (file_key, "File a watermark key and get its receipt."),
    (deposit, "Date a model or recorded outputs."),
    (digest, "Show what a time stamp of a deposit must be of."),
    (status, "Show where a filing, dispute or deposit stands."),
    (wait, "Wait until a filing or dispute is decided."),
    (dispute, "Claim a suspect with an admitted key."),
    (answer, "Answer a dispute."),
    (withdraw, "Withdraw a filing or dispute of yours."),
    (ruling, "Show the signed ruling in a dispute."),
    (report, "Fetch the report of a ruling."),
    (search, "Search the registry."),
    (claim, "Show a filed claim, checked against the log."),
    (receipt, "Fetch a fresh receipt."),
    (check_receipt, "Check a receipt offline."),
    (pool, "List or fetch published pools and word lists."),
    (log, "Check the log's checkpoint and list entries."),
    (monitor, "Watch the log for rewriting and for your name."),
    (token, "List, make and revoke API tokens."),
)
for _command, _words in _COMMANDS:
    _command.short_help = _words
    command.add_command(_command)
