# SPDX-License-Identifier: MIT
"""Many clients at once: load_test.py SERVER FOLDER [CLIENTS [SECONDS]]

SERVER is built with Ignis, FOLDER has a model (a tiny one is made if it is empty). Each client asks one request after the other: whole answers, streams,
several texts at once, tools, forced calls. One in eight vanishes in the middle of an answer, and one in eight reads slowly. No request fails but those of clients that
vanish; at the end the server has as many descriptors and as much memory as at half-time: before, steps for more numbers of sequences are captured, and the arenas
of malloc fill.
Prints percentiles of times."""
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_test as st  # noqa: E402

CLIENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 256
SECONDS = float(sys.argv[4]) if len(sys.argv) > 4 else 600


class Client(threading.Thread):
    def __init__(self, server, number, until, seconds_to_wait):
        super().__init__()
        self.server, self.number, self.until, self.patience = server, number, until, seconds_to_wait
        self.kind = ("vanishing", "slow")[number % 8] if number % 8 < 2 else "patient"
        self.chance = random.Random(number)
        self.firsts, self.wholes, self.errors, self.vanished = [], [], [], 0

    def request(self):
        chance, kind = self.chance, self.chance.randrange(4)
        body = {"max_tokens": chance.randint(4, 24), "seed": chance.randrange(1 << 30), "stream": kind != 1}
        if kind == 2:
            body.update(messages=[{"role": "user", "content": "x" * chance.randint(1, 40)}], tools=st.TOOLS[1:],
                        tool_choice=chance.choice(("auto", "required")))
        elif kind == 3:
            body.update(prompt=["ab" * chance.randint(1, 30), "c"], n=2)
        else:
            body.update(prompt="y" * chance.randint(1, 100))
        return "/v1/chat/completions" if kind == 2 else "/v1/completions", body

    def one(self):
        path, body = self.request()
        start, data, first = time.time(), b"", None
        with self.server.connect(self.patience) as c:
            c.sendall(st.post(body, path, "Connection: close\r\n"))
            while True:
                got = c.recv(256 if self.kind == "slow" else 65536)
                if not got:
                    break
                first = first or time.time()
                data += got
                if self.kind == "slow":
                    time.sleep(0.005)
                if self.kind == "vanishing" and self.chance.random() < 0.5:
                    self.vanished += 1
                    return
        status = st.status_of(data)
        if status != 200 or b'"error"' in data or (body["stream"] and b"[DONE]" not in data):
            self.errors.append((status, data[-300:]))
            return
        if body["stream"]:
            self.firsts.append(first - start)
        self.wholes.append(time.time() - start)

    def run(self):
        while time.time() < self.until:
            try:
                self.one()
            except (OSError, socket.timeout) as error:
                self.errors.append(repr(error))


def percentiles(times):
    times = sorted(times)
    return ", ".join("%d %%: %.3f s" % (p, times[min(len(times) - 1, int(len(times) * p / 100))]) for p in (50, 90, 99)) if times else "none"


def metrics(server):
    return dict(line.rsplit(" ", 1) for line in server.ask("GET", "/metrics")[2].decode().splitlines() if line[0] != "#")


def load(server, seconds, patience=600):
    clients = [Client(server, i, time.time() + seconds, patience) for i in range(CLIENTS)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    server.idle(60)
    time.sleep(0.5)
    return clients, server.descriptors(), server.resident()


def main():
    st.make_model(st.MODEL)
    with st.Server("--sequences", min(64, max(4, CLIENTS // 4)), "--context", 320, "--connections", 2 * CLIENTS, "--queue", 8 * CLIENTS) as server:
        before, start = int(metrics(server)["serve_generated_tokens_total"]), time.time()
        clients, descriptors, memory = load(server, SECONDS / 2)
        later, after, grown = load(server, SECONDS / 2)
        clients += later
        errors = [e for c in clients for e in c.errors]
        firsts, wholes = [t for c in clients for t in c.firsts], [t for c in clients for t in c.wholes]
        values = metrics(server)
        tokens = (int(values["serve_generated_tokens_total"]) - before) / (time.time() - start)
        print("     %d clients, %.0f s: %d answers, %d clients vanished, %d errors; %.0f tokens/s" % (CLIENTS, SECONDS, len(wholes), sum(c.vanished for c in clients), len(errors), tokens))
        print("     first bytes of streams, %s; whole answers, %s" % (percentiles(firsts), percentiles(wholes)))
        print("     descriptors %d, then %d; memory %d KiB, then %+d KiB" % (descriptors, after, memory, grown - memory))
        assert not errors, errors[:3]
        assert wholes and after <= descriptors
        assert grown - memory < 4096 + 16 * CLIENTS, "the server's memory has grown"
        assert values["serve_running"] == values["serve_waiting"] == values["serve_failed_total"] == "0", json.dumps(values)
    print("ok   serve: load")


main()
