"""Many commands at a time: they wait for each other, fail by themselves, and end in time."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def queue():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("job_queue")
    sys.modules.pop("job_queue", None)


@pytest.fixture(scope="module")
def tables(queue):
    return importlib.import_module("on_one_gpu")


def script(tmp_path: Path, name: str, code: str) -> tuple[str, ...]:
    path = tmp_path / f"{name}.py"
    path.write_text(code, encoding="utf-8")
    return (str(path),)


def test_jobs_wait_for_what_they_need(queue, tmp_path):
    out = tmp_path / "order.txt"
    code = f"open({str(out)!r}, 'a').write(__file__[-4] + ' ')"
    jobs = [
        queue.Job("b", script(tmp_path, "b", code), after=("a",)),
        queue.Job("a", script(tmp_path, "a", f"import time; time.sleep(0.5); {code}")),
        queue.Job("c", script(tmp_path, "c", code), after=("a", "b")),
    ]
    ended = queue.JobQueue(jobs, tmp_path / "logs").run()
    assert out.read_text(encoding="utf-8").split() == ["a", "b", "c"]
    assert [each.status for each in ended] == [0, 0, 0]


def test_what_needs_a_failed_job_never_begins_and_the_rest_goes_on(queue, tmp_path, capfd):
    jobs = [
        queue.Job("bad", script(tmp_path, "bad", "raise SystemExit('no such model')")),
        queue.Job("next", script(tmp_path, "next", ""), after=("bad",)),
        queue.Job("last", script(tmp_path, "last", ""), after=("next",)),
        queue.Job("other", script(tmp_path, "other", "")),
    ]
    ended = {each.name: each.status for each in queue.JobQueue(jobs, tmp_path / "logs").run()}
    assert ended == {"bad": 1, "next": None, "last": None, "other": 0}
    shown = capfd.readouterr().err
    assert "failed (1): bad" in shown
    assert "no such model" in shown


def test_when_the_time_is_over_jobs_and_their_children_end(queue, tmp_path):
    child = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True);"
    jobs = [
        queue.Job("long", script(tmp_path, "long", child + "import time; time.sleep(60)")),
        queue.Job("waits", script(tmp_path, "waits", ""), after=("long",)),
    ]
    began = time.monotonic()
    # Long enough for a busy machine to start a program that starts another.
    ended = {each.name: each.status for each in queue.JobQueue(jobs, tmp_path / "logs").run(8.0)}
    assert time.monotonic() - began < 20
    assert ended == {"long": None, "waits": None}
    pid = int((tmp_path / "logs" / "long.log").read_text(encoding="utf-8"))
    # It was told to end before the queue returned; the kernel may take a moment.
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_less_urgent_jobs_give_way_on_cpu_and_gpu(queue, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_MPS_CLIENT_PRIORITY", raising=False)
    code = "import os; print(os.nice(0), os.environ.get('CUDA_MPS_CLIENT_PRIORITY'))"
    words = script(tmp_path, "says", code)
    queue.JobQueue(
        [queue.Job("urgent", words), queue.Job("other", words, niceness=10)], tmp_path / "logs"
    ).run()
    said = {
        name: (tmp_path / "logs" / f"{name}.log").read_text(encoding="utf-8").split()
        for name in ("urgent", "other")
    }
    assert said["urgent"][1:] == ["None"]
    assert said["other"][1:] == ["1"]
    assert int(said["other"][0]) == min(19, int(said["urgent"][0]) + 10)


def test_unknown_and_double_names_are_refused(queue, tmp_path):
    for jobs in (
        [queue.Job("a", (), after=("z",))],
        [queue.Job("a", ()), queue.Job("a", ())],
    ):
        with pytest.raises(ValueError, match="named once"):
            queue.JobQueue(jobs, tmp_path)


def test_without_the_service_processes_take_turns(queue, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with queue.shared_gpu() as variables:
        assert variables == {}


def test_a_service_that_does_not_work_is_ended_and_left_alone(queue, tmp_path, monkeypatch, capfd):
    said = tmp_path / "said.txt"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\necho "$*" >> {said}\n[ -n "$1" ] || cat >> {said}\nexit 0\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(queue, "_TRIAL", "raise SystemExit(3)")
    with queue.shared_gpu() as variables:
        assert variables == {}
    assert "take turns" in capfd.readouterr().err
    assert said.read_text(encoding="utf-8").split() == ["-d", "quit", "-t", "1"]


def test_every_job_is_a_command_that_its_script_understands(tables, queue, tmp_path):
    plan = tables.Plan(Path("m"), Path("d"), tmp_path, tmp_path, "cpu", ("position_weight=2.0",))
    jobs = plan.jobs(tables.TABLES)
    queue.JobQueue(jobs, tmp_path)  # all that is waited for is there
    scripts = {Path(job.words[0]).name for job in jobs}
    assert scripts == {"pair_code.py", "fidelity.py", "evidence.py", "attacks.py"}
    assert {job.name for job in jobs if job.niceness == 0} == {"mark", "calibrate", "attacks"}
    for job in jobs:
        if job.name in ("mark", "thief-weights", "fidelity-0", "calibrate", "attacks"):
            done = subprocess.run(
                [sys.executable, *job.words], capture_output=True, text=True, check=False
            )
            # There is no such model: that is found out after the words were understood.
            assert done.returncode == 1, done.stderr
            assert "usage:" not in done.stderr


@pytest.mark.slow
def test_the_pair_codes_table_on_a_tiny_model(tiny_st, tmp_path):
    out = tmp_path / "out"
    words = ["--model", tiny_st, "--work", tmp_path / "work", "--out", out, "--tiny"]
    words += ["--device", "cpu", "--tables", "pair-code", "--readers", "2"]
    command = [sys.executable, str(FOLDER / "on_one_gpu.py"), *map(str, words)]
    subprocess.run(command, check=True, timeout=1500)
    parts = json.loads((out / "pair-code.json").read_text(encoding="utf-8"))["parts"]
    assert list(parts) == ["mark", "attacks", "validity", "kinds", "limits"]
    assert "Not measured yet." not in (out / "pair-code.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_settings_of_the_mark_side_by_side(tiny_st, tmp_path):
    settings = tmp_path / "settings.json"
    pruned = {"pruned_pair_weight": 0.1, "pruned_share": 0.3}
    settings.write_text(json.dumps({"plain": {}, "pruned": pruned}), encoding="utf-8")
    out = tmp_path / "out.json"
    words = ["--model", tiny_st, "--work", tmp_path / "work", "--json", out, "--tiny"]
    words += ["--device", "cpu", "--settings", settings]
    command = [sys.executable, str(FOLDER / "mark_settings.py"), *map(str, words)]
    done = subprocess.run(command, check=True, timeout=900, capture_output=True, text=True)
    heads = [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != " "]
    assert heads == ["plain", "pruned", "best"]
    best = tmp_path / "work" / "best"
    assert done.stdout.endswith(f"best: {best.readlink()}\n")
    assert (best / "owner" / "owner.nsmark").exists()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["pruned"]["mark"]["settings"]["pruned_share"] == 0.3
    plain = found["plain"]["outlasted"]
    assert plain[0]["verdict"] == "owned"
    assert plain[0]["triggered"]["pair_code_rate"] > 0.8
    whitened = next(row for row in plain if row["change"] == "whitened")
    assert whitened["triggered"]["aligned_subspace_overlap"] > 0.9
    assert plain[-1]["base"] == "feed-forward pruned 90%"
    # What is there is not made again; other settings under a name are.
    assert "began" in done.stderr
    again = subprocess.run(command, check=True, timeout=900, capture_output=True, text=True)
    assert "began" not in again.stderr
    assert again.stdout == done.stdout


def test_settings_are_compared_by_thefts_then_by_the_null_space(queue, tmp_path):
    compare = importlib.import_module("mark_settings")

    def result(similarity: float, reference: float, *verdicts: str) -> dict:
        rows = [
            {"base": base, "change": how, "verdict": verdict, "triggered": {"predictability": 0.9}}
            for verdict, (base, how) in zip(
                verdicts,
                [("marked", compare.NOISY), ("pruned 90%", "as it is"), ("pruned 95%", "as it is")],
                strict=True,
            )
        ]
        mark = {
            "fidelity": {"similarity_correlation": similarity},
            "other_witnesses": {"reference": {"predictability": reference}},
        }
        return {"mark": mark, "outlasted": rows, "changed": {"pruned_share": 0.5, "seed": 1}}

    found = {
        "weak": result(0.9995, 0.8, "owned", "owned", "owned"),
        "strong": result(0.9992, 0.2, "owned", "owned", "not_shown"),
        "missing": result(0.9999, 0.0, "owned", "not_shown", "owned"),
        "costly": result(0.9980, 0.0, "owned", "owned", "owned"),
    }
    for name in found:
        (tmp_path / name).mkdir()
    assert compare.lead_to_best(tmp_path, found) == "strong"
    settings = (tmp_path / "best" / "settings.txt").read_text(encoding="utf-8")
    assert settings == "pruned_share=0.5 seed=1\n"
    assert compare.lead_to_best(tmp_path, {"weak": found["weak"]}) == "weak"
    assert (tmp_path / "best").readlink() == Path("weak")
