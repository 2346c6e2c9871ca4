"""Flight Recorder dumps of real hangs and of made ones, whatever the files are called and whichever are
missing."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mycroft.hangs import Call, Program, Run, training

from lineside.diagnose.diagnosis import Diagnosis, NothingToDiagnoseError, diagnose_files

from .dumps import nccl_dump, write

DATA = Path(__file__).parents[2] / "data" / "flight_recorder"
TRUTH = json.loads((DATA / "gloo" / "truth.json").read_text())
GLOO_CASES = sorted(TRUTH.keys() - {"groups"})
MEGATRON = {"gpu_error_1st": (12, 14), "lock_gil_1st": (9, 14)}


def verdict_of(*paths: Path) -> dict[str, Any]:
    return diagnose_files(paths).as_json()


@pytest.fixture
def moved(tmp_path: Path) -> Any:
    """Copies a case's dumps under other names: ``moved(case, name_of)``."""

    def copy(case: str, name_of: Any) -> Path:
        for file in sorted((DATA / "megatron_moe" / case).glob("_dump_*")):
            rank = int(file.name.rsplit("_", 1)[1])
            target = tmp_path / name_of(rank)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        return tmp_path

    return copy


@pytest.mark.parametrize("case", MEGATRON)
def test_the_injected_ranks_of_real_hangs_are_named_and_nobody_else(case: str) -> None:
    found = verdict_of(DATA / "megatron_moe" / case)
    assert found["kind"] == "hang"
    assert tuple(found["culprits"]) == MEGATRON[case]
    assert found["victims"] == sorted(set(range(16)) - set(MEGATRON[case]))
    assert found["class"] == ("stuck" if case == "gpu_error_1st" else "absent")
    assert [Path(name).name for name in found["skipped_files"]] == ["fault_injection.log"]


@pytest.mark.parametrize("form", ["json", "pickle", ""])
@pytest.mark.parametrize("case", GLOO_CASES)
def test_gloo(case: str, form: str) -> None:
    found = verdict_of(DATA / "gloo" / case / form)
    truth = TRUTH[case]
    assert found["kind"] == truth["kind"]
    for key in ("culprits", "victims", "class", "missing_ranks"):
        if key in truth:
            assert found[key] == truth[key]
    if truth["kind"] != "healthy":
        assert found["groups"] == ["dp0"]


@pytest.mark.parametrize("case", MEGATRON)
@pytest.mark.parametrize("victim", range(16))
def test_any_missing_victim_changes_no_culprit(case: str, victim: int) -> None:
    files = sorted((DATA / "megatron_moe" / case).glob("_dump_*"))
    found = verdict_of(*(file for file in files if file.name != f"_dump_{victim}"))
    assert found["missing_ranks"] == [victim]
    assert tuple(found["culprits"]) == tuple(r for r in MEGATRON[case] if r != victim)


@pytest.mark.parametrize("case", MEGATRON)
def test_culprits_that_left_no_dump_are_found_by_their_absence(case: str) -> None:
    files = sorted((DATA / "megatron_moe" / case).glob("_dump_*"))
    gone = [f"_dump_{rank}" for rank in MEGATRON[case]]
    found = verdict_of(*(file for file in files if file.name not in gone))
    assert tuple(found["culprits"]) == tuple(found["missing_ranks"]) == MEGATRON[case]
    assert found["class"] == "dead"


@pytest.mark.parametrize(
    "name_of",
    [
        lambda rank: f"{chr(97 + rank)}.bin",
        lambda rank: f"host{15 - rank}.trace",
        lambda rank: f"node/{rank // 8}/2026-11-30T18-00-0{rank % 8}.{rank}.pkl",
        lambda rank: f"rank_{(rank + 1) % 16}",
    ],
    ids=["no number", "another number", "many numbers", "a wrong rank"],
)
@pytest.mark.parametrize("case", MEGATRON)
def test_file_names_do_not_matter_where_the_dump_says_whose_it_is(
    case: str, name_of: Any, moved: Any
) -> None:
    assert tuple(verdict_of(moved(case, name_of))["culprits"]) == MEGATRON[case]


def test_gloo_dumps_are_told_apart_by_name(tmp_path: Path) -> None:
    source = DATA / "gloo" / "hang_sleep"
    shutil.copy(source / "groups.json", tmp_path)
    for rank in range(4):
        shutil.copy(source / "pickle" / f"rank_{rank}", tmp_path / f"job7-rank{rank}-host3.pt")
    assert verdict_of(tmp_path)["culprits"] == [2]


def test_without_a_name_gloo_dumps_are_not_used_and_nobody_is_accused(tmp_path: Path) -> None:
    source = DATA / "gloo" / "hang_sleep"
    shutil.copy(source / "groups.json", tmp_path)
    shutil.copy(source / "pickle" / "rank_0", tmp_path / "rank_0")
    shutil.copy(source / "pickle" / "rank_2", tmp_path / "other")
    for rank in (1, 3):
        shutil.copy(source / "pickle" / f"rank_{rank}", tmp_path / f"x{chr(97 + rank)}")
    found = verdict_of(tmp_path)
    # dp0 holds ranks 0 and 2, so the unnamed one of the two is rank 2; 1 and 3 stay unknown.
    assert found["culprits"] == [2]
    assert len(found["skipped_files"]) == 2
    (tmp_path / "other").unlink()
    assert verdict_of(tmp_path)["kind"] == "cannot_tell"


def test_groups_from_a_given_file(tmp_path: Path) -> None:
    source = DATA / "gloo" / "dead"
    for rank in (0, 1, 3):
        shutil.copy(source / "json" / f"rank_{rank}.json", tmp_path)
    assert verdict_of(tmp_path)["kind"] == "cannot_tell"
    assert diagnose_files([tmp_path], source / "groups.json").as_json()["culprits"] == [2]


def test_foreign_truncated_and_malicious_files_are_listed_and_never_used(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "megatron_moe" / "lock_gil_1st", folder)
    (folder / "notes.txt").write_text("rank 3 is slow")
    (folder / "config.json").write_text('{"ranks": [1, 2]}')
    (folder / "empty").touch()
    (folder / "list.pkl").write_bytes(pickle.dumps([1, 2]))
    whole = (folder / "_dump_5").read_bytes()
    (folder / "_dump_5").write_bytes(whole[: len(whole) // 2])
    found = verdict_of(folder)
    assert found["culprits"] == [9, 14]
    assert found["missing_ranks"] == [5]
    skipped = {Path(name).name for name in found["skipped_files"]}
    made = {"notes.txt", "config.json", "empty", "list.pkl", "_dump_5"}
    assert skipped == {*made, "fault_injection.log"}


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("hello")
    with pytest.raises(NothingToDiagnoseError) as caught:
        diagnose_files([tmp_path, tmp_path / "is not there"])
    assert {Path(name).name for name in caught.value.skipped} == {"x.log", "is not there"}


@pytest.mark.parametrize(
    "damage",
    [
        {"collective_seq_id": "x"},
        {"record_id": 2**80},
        {"process_group": 3},
        {"input_sizes": [["a"]], "output_sizes": [["a"]]},
    ],
)
def test_a_damaged_entry_makes_the_dump_unusable(tmp_path: Path, damage: dict[str, Any]) -> None:
    run = Run(training(1, 1, 4), host_stops={2: 3})
    dumps = {rank: nccl_dump(run, rank) for rank in run.program}
    dumps[1]["entries"][0] |= damage
    write(tmp_path, dumps)
    found = verdict_of(tmp_path)
    assert found["culprits"] == [2]
    assert found["missing_ranks"] == [1]


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("active_only", [True, False])
@pytest.mark.parametrize("ahead", [1, 20])
def test_made_hangs_through_dumps(
    tmp_path: Path, active_only: bool, as_json: bool, ahead: int
) -> None:
    run = Run(training(2, 2, 2), ahead, host_stops={6: 5})
    dumps = {rank: nccl_dump(run, rank, active_only=active_only) for rank in run.program}
    write(tmp_path, dumps, as_json=as_json)
    found = verdict_of(tmp_path)
    assert (found["class"], found["culprits"]) == ("absent", [6])


def test_a_peer_without_open_operations_in_the_group_still_counts(tmp_path: Path) -> None:
    """Of finished operations a dump of active ones holds nothing; ``pg_status`` shows that rank 1 went on."""
    program: Program = {
        0: [Call((0, 1))] * 3,
        1: [Call((0, 1))] * 3 + [Call((1, 2))],
        2: [Call((1, 2))],
    }
    run = Run(program, device_stops={0: 3, 2: 0}, forgets={0: 1})
    dumps = {rank: nccl_dump(run, rank) for rank in program}
    write(tmp_path, dumps)
    assert (verdict_of(tmp_path)["class"], verdict_of(tmp_path)["culprits"]) == ("stuck", [0])


def test_parts_of_a_coalesced_batch_follow_the_whole(tmp_path: Path) -> None:
    """PyTorch never updates the parts of ``batch_isend_irecv``; only the ``coalesced`` entry ends."""
    calls = [Call((0, 1), "transfer"), Call((1, 0), "transfer"), Call((0, 1))]
    program: Program = {0: calls, 1: calls}
    run = Run(program, host_stops={1: 2})
    dumps = {rank: nccl_dump(run, rank, active_only=False) for rank in program}
    for dump in dumps.values():
        parts = dump["entries"][:2]
        for part in parts:
            part |= {"state": "scheduled", "retired": False, "p2p_seq_id": 1}
            part["process_group"] = parts[0]["process_group"]
        whole = parts[0] | {
            "profiling_name": "nccl:coalesced",
            "state": "completed",
            "record_id": 2,
        }
        for entry in dump["entries"][2:]:
            entry["record_id"] = 3
        dump["entries"].insert(2, whole)
    write(tmp_path / "whole", dumps)
    found = verdict_of(tmp_path / "whole")
    assert (found["class"], found["culprits"]) == ("absent", [1])
    for dump in dumps.values():  # a dump of active operations leaves the finished whole out
        dump["entries"] = [e for e in dump["entries"] if e["state"] == "scheduled"]
    write(tmp_path / "active", dumps)
    assert verdict_of(tmp_path / "active")["culprits"] == [1]


@given(st.permutations(range(16)), st.sampled_from(sorted(MEGATRON)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_files_does_not_matter(order: list[int], case: str) -> None:
    folder = DATA / "megatron_moe" / case

    def told(found: Diagnosis) -> dict[str, Any]:
        return found.as_json() | {"skipped_files": []}

    expected = told(diagnose_files([folder / f"_dump_{rank}" for rank in range(16)]))
    assert told(diagnose_files([folder / f"_dump_{rank}" for rank in order])) == expected


def test_gloo_retires_what_failed_so_a_wrong_size_shows_in_finished_operations(
    tmp_path: Path,
) -> None:
    source = DATA / "gloo" / "hang_sleep"
    shutil.copy(source / "groups.json", tmp_path)
    dumps = {r: json.loads((source / "json" / f"rank_{r}.json").read_text()) for r in range(4)}
    failed = dumps[0]["entries"][-1]
    failed["retired"] = True
    wrong = failed | {"input_sizes": [[131072]], "output_sizes": [[131072]], "record_id": 12}
    dumps[2]["entries"].append(wrong)
    write(tmp_path, dumps, as_json=True)
    found = verdict_of(tmp_path)
    assert (found["kind"], found["class"]) == ("application_error", "size_mismatch")
    assert found["culprits"] == [0, 2]
    assert found["victims"] == [1, 3]


def test_an_empty_dump_is_evidence_in_json_too(tmp_path: Path) -> None:
    """PyTorch's JSON has no ``entries`` at all where nothing is recorded."""
    run = Run(training(1, 1, 4), host_stops={2: 0})
    write(tmp_path, {rank: nccl_dump(run, rank) for rank in (0, 1, 3)}, as_json=True)
    nothing = {"version": "2.10", "comm_lib_version": "", "pg_config": {}, "pg_status": {}}
    write(tmp_path, {2: nothing}, as_json=True)
    found = verdict_of(tmp_path)
    assert (found["class"], found["culprits"]) == ("absent", [2])
    assert found["missing_ranks"] == []
