"""A client that echoes, raises or dies."""

from __future__ import annotations

import os
import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    mode = context.run_config["toy-mode"]
    if mode == "client-dies":
        os._exit(3)
    if mode == "slow":
        time.sleep(600)
    return Message(message.content, reply_to=message)
