import io
import json

import pytest
from rich.console import Console

from regionfed_flwr.simulation.engine.progress import EventTail, LiveDisplay, PlainDisplay, describe, open_display

ROUND = {"event": "round", "round": 2, "rounds": 6, "overall": {"shared": 0.5, "regional": 0.625}}
COURSE = [
    {"event": "waiting", "round": 0, "rounds": 6, "text": "waiting for the nodes"},
    {"event": "start", "rounds": 6, "text": "4 users [here]"},
    {"event": "train", "round": 2, "rounds": 6},
    {"event": "evaluate", "round": 2, "rounds": 6},
    ROUND,
    {"event": "rejected", "round": 3, "rounds": 6, "text": "user 3: not finite"},
    {"event": "round", "round": 3, "rounds": 6, "overall": {}},
    {"event": "failed", "text": "It broke."},
    {"event": "done", "rounds": 6, "text": "finished"},
]


def test_tail_reads_each_line_once_and_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert tail.read() == []
    line = json.dumps({"event": "start", "text": "größer"}, ensure_ascii=False).encode() + b"\n"
    for cut in range(1, len(line)):
        path.write_bytes(line[:cut])
        assert tail.read() == []
    path.write_bytes(line + line[:9])
    assert [event["text"] for event in tail.read()] == ["größer"]
    assert tail.read() == []
    path.write_bytes(line * 3)
    assert len(tail.read()) == 2


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":\n[1]\n{"round": 1}\n{"event": 3}\n\n{"event": "done"}\n')
    assert EventTail(path).read() == [{"event": "done"}]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ROUND, "Round 2/6: shared 0.500, regional 0.625"),
        (ROUND | {"overall": {}}, "Round 2/6"),
        (ROUND | {"overall": None, "text": "quiet"}, "Round 2/6: quiet"),
        ({"event": "train", "round": 1, "rounds": 6}, "Training, round 1/6"),
        ({"event": "waiting", "text": "waiting for the nodes"}, "Waiting for the nodes"),
        ({"event": "rejected", "text": "user 3"}, "Rejected: user 3"),
        ({"event": "odd"}, "Odd"),
    ],
)
def test_events_in_words(event, line):
    assert describe(event) == line


def test_plain_display_prints_a_line_a_round_without_control_characters():
    file = io.StringIO()
    with open_display(Console(file=file, width=20)) as display:
        assert isinstance(display, PlainDisplay)
        display.phase("Starting Flower")
        for event in COURSE:
            display.show(event)
    assert file.getvalue().splitlines() == [
        "Starting Flower",
        "Waiting for the nodes",
        "Start: 4 users [here]",
        "Round 2/6: shared 0.500, regional 0.625",
        "Rejected: user 3: not finite",
        "Round 3/6",
        "Finished",
    ]


def test_live_display_shows_the_bar_and_the_lines_above_it():
    file = io.StringIO()
    with open_display(Console(file=file, width=120, force_terminal=True, _environ={})) as display:
        assert isinstance(display, LiveDisplay)
        display.phase("Starting Flower")
        for event in COURSE[:6]:
            display.show(event)
    text = file.getvalue()
    assert "2/6" in text
    assert "Round 2/6: shared 0.500, regional 0.625\n" in text.replace("\r", "")
    assert "Start: 4 users [here]\n" in text.replace("\r", "")
    assert "Rejected: user 3: not finite" in text
