# SPDX-License-Identifier: MIT
"""talk_test.py - examples/chat.c as its user sees it, with the small random model of serve_test.py

    talk_test.py CHAT MODEL"""
import os
import re
import signal
import subprocess
import sys
import time

CHAT, MODEL = sys.argv[1:3]
sys.argv = [sys.argv[0], CHAT, MODEL]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps", "serve", "tests"))
from serve_test import make_model  # noqa: E402


class Talk:
    """A running program; what it writes is read up to its next prompt."""

    def __init__(self, *options):
        self.errors = open(MODEL + "/errors", "wb+")
        self.process = subprocess.Popen([CHAT, MODEL, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0)
        self.read()

    def read(self, text=b""):
        while not text.endswith(b"> ") or not (text == b"> " or b"]\n> " in text[-8:]):
            piece = self.process.stdout.read(1)
            if not piece:
                break
            text += piece
        return text.decode(errors="replace")

    def say(self, line, answers=True):
        self.process.stdin.write(line.encode() + b"\n")
        begun = self.process.stdout.read(1)
        if answers and begun != b"[":  # the model would go on up to the end of its context
            self.process.send_signal(signal.SIGINT)
        return self.read(begun)

    def end(self, line=b"\n"):
        """The exit status behind a last line, and what the program has said of errors."""
        if line is not None:
            self.process.stdin.write(line)
            self.process.stdin.close()
        status = self.process.wait(60)
        self.errors.seek(0)
        return status, "".join(l for l in self.errors.read().decode().splitlines(True) if not l.startswith("ignis simulator"))


def main():
    make_model(MODEL)
    talk = Talk("short")
    for _ in range(2):
        reply = talk.say("x" * 700, False)
        assert reply.startswith("[this makes 7") and "the context has 512: the message is left out]" in reply, reply
    reply = talk.say("x" * 300)  # goes on, and stops by Ctrl-C
    assert 0 < int(re.search(r"\[(\d+) tokens, ", reply)[1]) < 100, reply
    reply = talk.say("y" * 200, False)
    assert "[the talk is too long for the context: its first 1 turns are forgotten]" in reply and "a second" in reply, reply
    assert "[a line has up to 16382 bytes; this one is left out]" in talk.say("z" * 40000, False)
    assert talk.end() == (0, "")
    print("ok   talk: messages longer than the context")

    for line in (b"\n", b""):  # an empty line; the end of the input
        talk = Talk()
        assert talk.end(line) == (0, "")
    talk = Talk()
    talk.say("hello")
    time.sleep(0.2)
    talk.process.send_signal(signal.SIGINT)  # at the prompt
    assert talk.end(None) == (-signal.SIGINT, "")
    print("ok   talk: ends")

    none = subprocess.run([CHAT, MODEL + "/none"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert none.returncode == 1 and none.stdout == "" and none.stderr.count("cannot be opened") == 1, none
    print("ok   talk: a model that is not there")


main()
