import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from regionfed_flwr import __version__, cli
from regionfed_flwr.config import RunConfig, keys
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation import engine

TOY = Path(__file__).parent / "e2e" / "toy_app"


@pytest.fixture
def regionfed(monkeypatch, capsys, tmp_path):
    """Call the command in an empty folder; returns its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["regionfed", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Put an engine in place that only notes what it was asked for, and ends as told."""
    calls: list[dict] = []
    ending = {"exit_code": 0, "reason": ""}

    def run(config, **options):
        calls.append({"config": config, **options})
        return engine.RunOutcome(output=tmp_path / "out", nodes=1, seconds=1.0, **ending)

    monkeypatch.setattr(engine, "run_simulation", run)
    return calls, ending


def test_the_command_line_imports_nothing_heavy():
    heavy = {"flwr", "torch", "numpy", "ray", "psutil", "transformers", "datasets", "matplotlib"}
    code = f"import regionfed_flwr.cli, sys; print(sorted({heavy!r} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-c", "seeed=1"], "Unknown configuration key 'seeed'. Did you mean 'seed'?"),
        (["-c", "seed=one"], "Configuration key 'seed' is 'one', but allowed is"),
        (["-c", "fraction=2"], "Configuration key 'fraction' is 2, but allowed is"),
        (["-c", "seed"], "'seed' is no configuration value; write KEY=VALUE"),
        (["--config", "none.toml"], "The configuration file 'none.toml' cannot be read: No such file or directory."),
        (["--config", "bad.toml"], "The configuration file 'bad.toml' is not valid TOML"),
        (["--nodes", "0"], "--nodes is 0, but a run needs at least 1 node."),
        (["--app", "."], "'.' is no Flower app"),
        (["--app", str(TOY), "-c", "no=1"], "The configuration key 'no' is not declared in the manifest"),
        (["--app", str(TOY), "-c", "num-server-rounds=-1"], "Configuration key 'num-server-rounds' is -1"),
    ],
)
def test_bad_input_ends_with_code_2_and_a_sentence_before_anything_starts(
    regionfed, monkeypatch, tmp_path, arguments, sentence
):
    (tmp_path / "bad.toml").write_text("seed =")
    monkeypatch.setattr("subprocess.Popen", None)
    code, out, err = regionfed("run", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith(f"regionfed: {sentence}")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


def test_assignments_win_over_the_file(regionfed, started, tmp_path):
    calls, _ = started
    (tmp_path / "run.toml").write_text('seed = 3\nrho = 0.5\nmethod = "fedavg"\n')
    code, _, _ = regionfed("run", "--config", "run.toml", "-c", "seed=4", "-c", "run-name=a b", "--nodes", "3")
    assert code == 0
    assert calls[0]["config"] == RunConfig(seed=4, rho=0.5, method="fedavg", run_name="a b")
    assert calls[0]["nodes"] == 3
    assert calls[0]["app_values"] is None


def test_another_app_gets_its_own_keys(regionfed, started):
    calls, _ = started
    regionfed("run", "--app", str(TOY), "-c", "toy-mode=slow", "-c", "num-server-rounds=3")
    assert calls[0]["app_values"] == {"toy-mode": "slow", "num-server-rounds": 3}
    assert calls[0]["app_dir"] == TOY


def test_success_shows_the_table_and_where_the_artifacts_are(regionfed, started, tmp_path):
    pictures = tmp_path / "out" / "figures"
    pictures.mkdir(parents=True)
    for name in ("b.png", "a.png", "c.txt"):
        (pictures / name).touch()
    (tmp_path / "out" / "table.txt").write_text("method  overall\n[x]        0.7\n")
    code, out, err = regionfed("run")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "",
        "method  overall",
        "[x]        0.7",
        "",
        f"Artifacts: {tmp_path / 'out'}",
        f"Picture:   {pictures / 'a.png'}",
        f"Picture:   {pictures / 'b.png'}",
    ]


@pytest.mark.parametrize("exit_code", [1, 130, 143])
def test_failure_ends_with_its_code_its_reason_and_the_logs(regionfed, started, tmp_path, exit_code):
    started[1].update(exit_code=exit_code, reason="It broke.")
    code, out, err = regionfed("run")
    assert (code, out) == (exit_code, "")
    assert err == f"regionfed: It broke.\nLogs: {tmp_path / 'out' / 'logs'}\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=1", 1),
        ("k = 0.5", 0.5),
        ("k=1e-3", 0.001),
        ("k=true", True),
        ("k=fedavg", "fedavg"),
        ("k='1'", "1"),
        ("k=a=b", "a=b"),
        ("k=/a/b c", "/a/b c"),
        ("k=", ""),
        ("k=[1, 2]", "[1, 2]"),
        ("k=2026-01-02", "2026-01-02"),
        ("k=1\nj=2", "1\nj=2"),
    ],
)
def test_values_are_toml_or_plain_words(text, value):
    name, parsed = cli.parse_assignment(text)
    assert (name, parsed, type(parsed)) == ("k", value, type(value))


@given(st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text("ab\"'\\=# ü"))
def test_every_toml_value_can_be_assigned(value):
    assert cli.parse_assignment(tomli_w.dumps({"key": value})) == ("key", value)


@pytest.mark.parametrize("text", ["", "key", "=1", " = 1"])
def test_an_assignment_needs_a_key_and_an_equals_sign(text):
    with pytest.raises(RegionFedError, match="write KEY=VALUE"):
        cli.parse_assignment(text)


def test_config_lists_every_key_in_three_forms(regionfed):
    _, plain, _ = regionfed("config")
    _, markdown, _ = regionfed("config", "--markdown")
    _, toml, _ = regionfed("config", "--toml")
    for key in keys():
        assert f" {key.name} " in plain
        assert f"| `{key.name}` |" in markdown
    lines = markdown.splitlines()
    assert len(lines) == 2 + len(keys())
    assert {line.replace(r"\|", "").count("|") for line in lines} == {6}
    assert tomllib.loads(toml)["tool"]["flwr"]["app"]["config"] == RunConfig().to_flower()


def test_version(regionfed):
    assert regionfed("version") == (0, f"{__version__}\n", "")


def test_pretrain_reports_its_course_and_its_scores(regionfed, monkeypatch, tmp_path):
    asked = []

    def pretrain(out_dir, seed, steps, progress):
        asked.append((out_dir, seed, steps))
        for step in range(1, steps + 1):
            progress(step, steps, 1 / step)
        return {"intent": 0.5}

    monkeypatch.setattr("regionfed_flwr.models.pretrain.pretrain", pretrain)
    code, out, _ = regionfed("pretrain", "--out", "weights", "--seed", "3", "--steps", "600")
    assert code == 0
    assert asked == [(Path("weights"), 3, 600)]
    assert out.splitlines() == [
        "Step 500/600: loss 0.002",
        "Step 600/600: loss 0.002",
        "intent 0.500",
        f"Weights: {tmp_path / 'weights'}",
    ]


def test_a_mistake_in_pretraining_is_a_sentence(regionfed, monkeypatch):
    def fail(*arguments):
        raise RegionFedError("Not there.")

    monkeypatch.setattr("regionfed_flwr.models.pretrain.pretrain", fail)
    assert regionfed("pretrain", "--steps", "1") == (2, "", "regionfed: Not there.\n")
