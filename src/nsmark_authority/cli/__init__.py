"""The authority's commands, a module each; `nsmark` finds them by an entry point."""

COMMANDS = {
    "serve": "Run a certification authority: registry, log, receipts, disputes.",
    "authority": "Look after an authority: back-up, restore, check, tokens.",
    "client": "File keys with an authority, dispute, check receipts, watch the log.",
}
