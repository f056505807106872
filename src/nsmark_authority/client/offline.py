"""Receipts as files, and what they prove, in words: nobody is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsmark.errors import FileAccessError
from nsmark.files import read_bounded, write_atomic
from nsmark_authority.fields import format_time
from nsmark_authority.receipt import MAX_RECEIPT_BYTES, RECEIPT_SUFFIX, CheckedReceipt, Receipt
from nsmark_authority.statements import (
    Admission,
    Defence,
    Deposit,
    Dispute,
    Filing,
    OwnerStatement,
    Publication,
    Registration,
    Ruling,
    Statement,
    Withdrawal,
    read_statement,
)

_MAX_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Explained:
    """What a receipt proves and what it does not, in sentences."""

    proven: tuple[str, ...]
    unproven: tuple[str, ...]


def explain(
    checked: CheckedReceipt, *, is_key_trusted: bool, content: str | None = None
) -> Explained:
    """Say what a receipt that passed every check proves.

    Args:
        checked: From :func:`~nsmark_authority.receipt.check_receipt`.
        is_key_trusted: Whether the authority's key came from elsewhere than the receipt.
        content: Name of the file that was compared with it.
    """
    statement = checked.statement
    proven, unproven = [_said(checked)], []
    where = (
        f"it is entry {checked.index} of the log of {statement.authority}, "
        f"which had {checked.tree_size} entries then"
    )
    if is_key_trusted:
        proven.append(where)
    else:
        unproven.append(
            f"that the key in the receipt is that of {statement.authority}: it came with the "
            f"receipt itself; by that key, {where}"
        )
    time = format_time(checked.time)
    stamped_by = checked.timestamp.authority
    if checked.is_local_time:
        unproven.append(
            f"when: {time} is the authority's own word, given with its local time-stamp key; to "
            "whoever does not trust the authority it proves no time"
        )
    elif not checked.are_roots_trusted:
        unproven.append(
            f"when: {time} is what {stamped_by} says, but the root certificate that vouches for it "
            "came with the receipt itself"
        )
    else:
        proven.append(f"it existed on {time} at the latest: time stamp of {stamped_by}")
    if content is not None:
        proven.append(f"{content} is the very content that it names")
    elif getattr(statement, "content_sha256", None) is not None:
        unproven.append("that a file you have is the one it names: none was compared")
    unproven += _never_proven(statement)
    return Explained(tuple(proven), tuple(unproven))


def receipt_path(path: Path) -> Path:
    """Return where the receipt of a file lies: beside it."""
    return path.with_name(path.name + RECEIPT_SUFFIX)


def keep_receipt(path: Path, receipt: Receipt) -> Path | None:
    """Write a receipt; a different one that is there already is kept under another name.

    Returns:
        Where the earlier one is now, if there was one.

    Raises:
        FileAccessError: Something cannot be read or written.
    """
    content = receipt.to_json()
    if not path.exists():
        write_atomic(path, content)
        return None
    earlier = read_bounded(path, MAX_RECEIPT_BYTES, "receipt")
    if earlier == content:
        return None
    kept = _free_name(path)
    # Written under its new name first: at no moment is one of the two on no disk.
    write_atomic(kept, earlier, overwrite=False)
    write_atomic(path, content)
    return kept


def statement_of(receipt: Receipt) -> Statement:
    """Return what a receipt is about; nothing is checked.

    Raises:
        TransparencyError: Its entry is no statement.
    """
    return read_statement(receipt.entry)


def _free_name(path: Path) -> Path:
    for number in range(1, _MAX_KEPT):
        name = path.with_name(f"{path.name}.{number}")
        if not name.exists():
            return name
    raise FileAccessError(f"there are too many earlier receipts beside {path}", "move them away")


def _said(checked: CheckedReceipt) -> str:
    """Say who said what."""
    statement = checked.statement
    if isinstance(statement, OwnerStatement):
        who = f"the holder of the key {checked.opened.signer.fingerprint}"
    else:
        who = f"the authority {statement.authority}"
    return f"{who} {_did(statement)}"


def _did(statement: Statement) -> str:
    match statement:
        case Registration():
            return f"registered as {statement.owner!r}"
        case Filing():
            claim = statement.ownership_claim()
            return (
                f"filed the watermark key {statement.key_id} with the claim of "
                f"{claim.owner!r}: {claim.message[:200]!r}"
            )
        case Deposit():
            return f"deposited {_THINGS[statement.what]} with digest {statement.content_sha256}"
        case Dispute():
            return f"opened a dispute with the key {statement.key_id}"
        case Defence():
            return f"answered the dispute {statement.dispute}"
        case Withdrawal():
            return f"withdrew {statement.subject}"
        case Publication():
            return f"published {statement.name!r} with digest {statement.digest}"
        case Admission():
            verb = "admitted" if statement.admitted else "refused"
            return f"{verb} the watermark key {statement.key_id}"
        case Ruling():
            return f"ruled {statement.outcome!r} in the dispute {statement.dispute}"
    return f"said a {statement.kind}"


_THINGS = {"model": "a model", "recorded": "recorded outputs"}


def _never_proven(statement: Statement) -> list[str]:
    match statement:
        case Registration():
            return [f"that the holder of the key really is {statement.owner!r}"]
        case Filing():
            return [
                "that the owner's name is his own, that the key was admitted, or that any model "
                "carries its mark: admission and rulings are entries of their own"
            ]
        case Deposit():
            return ["that the model works, or who made it"]
        case Dispute() | Defence():
            return ["that what is said in it is true"]
    return []
