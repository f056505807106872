"""What owners say, from the request to the receipt: noted if refused, told to workers if new."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Response

from nsmark_authority.receipt import Receipt
from nsmark_authority.records import Account
from nsmark_authority.statements import Withdrawal, entry_id_of
from nsmark_authority.web.context import Context
from nsmark_authority.web.documents import peek, receipt_answer
from nsmark_authority.web.errors import WebError


async def acknowledge(
    here: Context,
    account: Account,
    what: str,
    document: bytes,
    say: Callable[[], Receipt],
    *,
    wakes: bool = False,
) -> Response:
    """Log a statement and answer with its receipt: 200 where it was on record already.

    Args:
        here: The application's context.
        account: Who sends it.
        what: Its name in the audit trail.
        document: The signed statement.
        say: Logs it.
        wakes: Whether workers have something to do then.
    """

    def act() -> Response:
        entry_id = entry_id_of(document)
        status = 200 if here.authority.log.has(entry_id) else 201
        with here.audited(account, what, entry_id):
            receipt = say()
        if wakes and status == 201:
            here.wake_workers(entry_id)
        return receipt_answer(receipt, status)

    return await here.write(act)


async def acknowledge_withdrawal(
    here: Context,
    account: Account,
    document: bytes,
    entry_id: str,
    find: Callable[[str], object],
) -> Response:
    """Log the withdrawal of what a path names.

    Args:
        here: The application's context.
        account: Who sends it.
        document: The signed withdrawal.
        entry_id: What the path names.
        find: Finds it, or raises ``NotFoundError``.
    """

    def act() -> Response:
        with here.audited(account, "withdrawal", entry_id):
            statement = peek(document)
            if not isinstance(statement, Withdrawal) or statement.subject != entry_id:
                raise WebError(
                    422,
                    "the statement is no withdrawal of what the path names",
                    "send it where it belongs",
                )
            find(entry_id)
            return receipt_answer(here.authority.withdraw(document, by=account))

    return await here.write(act)
