# SPDX-License-Identifier: MIT
"""talk_test.py - apps/talk as its user sees it, with the small random model of serve_test.py

    talk_test.py TALK MODEL"""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

TALK, MODEL = sys.argv[1:3]
sys.argv = [sys.argv[0], TALK, MODEL]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "serve", "tests"))
from serve_test import make_model  # noqa: E402


class Talk:
    """A running program; what it writes is read up to its next prompt."""

    def __init__(self, *options):
        self.errors = open(MODEL + "/errors", "wb+")
        self.process = subprocess.Popen([TALK, MODEL, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0)
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


def read_terminal(terminal, until, seconds=120):
    """What has come up to a text. Sequences that move the cursor are left out."""
    text, end = "", time.time() + seconds
    while until not in text:
        assert time.time() < end and select.select([terminal], [], [], seconds)[0], (until, text)
        text += os.read(terminal, 65536).decode(errors="replace")
    return text


def edit():
    """Lines that are edited in a terminal; the seed that /help shows tells what was read."""
    own, theirs = pty.openpty()
    process = subprocess.Popen([TALK, MODEL], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=dict(os.environ, LC_ALL="C.UTF-8"))
    os.close(theirs)
    ready = "\x1b[?2004h"  # keys before it would meet the terminal's own editing
    read_terminal(own, ready)
    left, up = b"\x1b[D", b"\x1b[A"
    for keys, seed in ((b"/sed 7" + 3 * left + b"e\r", 7), (b"/seed 1\xc3\xa9\x7f2\r", 12), (2 * up + b"\x179\r", 9), (b"junk\x15/seed 5\r", 5), (b"5\x01/seed \x05 \x7f\x0b6\r", 56),
                       (b"\x1b[200~a\rb\x1b[201~\x15/seed 3\r", 3), (b"x/seed 8\x1b[H\x1b[3~\r", 8), (up + up + up + b"\x1b[B\x0e\x0e\x15/seed 4\r", 4),
                       (b"/seed " + b"0" * 200 + b"2\r", 2), (b"\x0c\x1b[99;5~\x1bOH\x1b[F\x1bx/seed 1\x06\x02\x04\x31\r", 1)):
        os.write(own, keys + b"/help\r")
        shown = read_terminal(own, "messages]")
        if ready not in shown.split("messages]")[1]:
            read_terminal(own, ready)
        assert "of the next answer (now %d)" % seed in shown, (keys, shown)
    os.write(own, b"junk\x03")
    shown = read_terminal(own, "[Ctrl-D ends the talk]")
    if ready not in shown.split("ends the talk]")[1]:
        read_terminal(own, ready)
    os.write(own, b"\x04")
    assert process.wait(60) == 0
    os.close(own)
    print("ok   talk: lines are edited")


def main():
    make_model(MODEL)
    edit()
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

    talk = Talk("short")
    path = MODEL + "/talk.txt"
    assert "[there is no turn]" in talk.say("/again", False) and "no such command" in talk.say("/nothing", False)
    talk.say("/tokens 3", False), talk.say("hello", False)
    assert "[3 tokens" in talk.say("/again", False) 
    assert "[3 messages are in" in talk.say("/save " + path, False)
    with open(path, encoding="utf-8", errors="replace") as file:
        assert file.read().startswith("system: short\n\nuser: hello\n\nassistant: ")
    assert "[the last turn is taken back]" in talk.say("/undo", False) and "[1 messages]" in talk.say("/help", False)
    assert "[there is no system's message]" in talk.say("/system", False) and "[0 messages]" in talk.say("/help", False)
    assert "[the system's message is set]" in talk.say("/system a b", False)
    assert talk.end(b"/quit\n") == (0, "")
    print("ok   talk: commands")

    for line in (b"\n", b""):  # an empty line; the end of the input
        talk = Talk()
        assert talk.end(line) == (0, "")
    talk = Talk()
    talk.say("hello")
    time.sleep(0.2)
    talk.process.send_signal(signal.SIGINT)  # at the prompt
    assert talk.end(None) == (-signal.SIGINT, "")
    print("ok   talk: ends")

    none = subprocess.run([TALK, MODEL + "/none"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert none.returncode == 1 and none.stdout == "" and none.stderr.count("cannot be opened") == 1, none
    print("ok   talk: a model that is not there")


main()
