"""Run with ``python -m nsmark``."""

from nsmark.cli.main import main

raise SystemExit(main())
