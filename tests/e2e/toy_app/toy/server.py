"""A server that writes the same files as the real one: events, results and a table."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    output = Path(str(context.run_config["output-dir"]))
    rounds = int(context.run_config["num-server-rounds"])
    mode = context.run_config["toy-mode"]

    def event(name: str, **values: Any) -> None:
        line = {"time": time.time(), "event": name, "rounds": rounds, **values}
        with (output / "events.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    event("waiting", text="waiting for nodes")
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    event("start", text=f"{len(nodes)} nodes")
    if mode == "server-raises":
        raise ValueError("The toy server was told to raise.")
    if mode == "server-dies":
        os._exit(3)
    for number in range(1, rounds + 1):
        event("train", round=number)
        messages = [Message(RecordDict({"c": ConfigRecord({"round": number})}), n, "train") for n in nodes]
        for reply in grid.send_and_receive(messages):
            if reply.has_error():
                text = f"A toy client failed in round {number} with error {reply.error.code}."
                event("failed", round=number, text=text)
                raise RuntimeError(text)
        event("round", round=number, overall={"shared": 0.5, "regional": 0.5 + 0.1 * number})
    (output / "figures").mkdir()
    (output / "figures" / "curve.png").write_bytes(b"not really a picture")
    (output / "table.txt").write_text("method  overall\ntoy     0.70\n")
    (output / "results.json").write_text(json.dumps({"nodes": len(nodes)}))
    event("done", text="finished")
