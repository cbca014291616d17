# SPDX-License-Identifier: MIT
"""The server as its clients see it: python3 apps/serve/tests/serve_test.py SERVER [FOLDER]

SERVER is built with the model of ignis_models.h beside this file, which repeats its prompt; `make check-serve` does that, with
AddressSanitizer, so that a leak or a wild access fails the run. SOAK=1: 24,000 short requests, and more damaged ones. ONLY=word: the tests
with that word in their names.
With FOLDER, SERVER is built with Ignis. If the folder has no model, it becomes a tiny one with random weights; what any model has to do is tried."""
import base64
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOAK = bool(os.environ.get("SOAK"))
PROGRAM = sys.argv[1]
MODEL = sys.argv[2] if len(sys.argv) > 2 else None
JSON = {"Content-Type": "application/json"}


class Server:
    def __init__(self, *options, step=0, env=None, warns=False, model=None):
        self.warns = warns  # it has something to say
        environment = dict(os.environ, **(env or {}))
        environment.pop("SERVE_API_KEY", None)
        if step:
            environment["SERVE_STEP_MS"] = str(step)
        self.process = subprocess.Popen([PROGRAM, model or MODEL or "/models/tiny/", "--port", "0", *map(str, options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise AssertionError("the server does not start: " + line + self.process.stderr.read())
        self.port = int(line.rsplit(":", 1)[1])
        self.address = "127.0.0.2" if "127.0.0.2" in options else "127.0.0.1"
        self.host = "127.0.0.1:%d" % self.port
        self.name = line.split()[1]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            _, errors = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server does not end")
        if kind is None:
            assert self.process.returncode == 0, (self.process.returncode, errors[-4000:])
            assert MODEL or bool(errors) == self.warns, errors[-4000:]
        elif errors:
            print(errors[-4000:])

    def connect(self, timeout=30):
        return socket.create_connection((self.address, self.port), timeout)

    def raw(self, data, timeout=30):
        """All that comes back on a connection of its own, until the server closes it."""
        with self.connect(timeout) as s:
            s.sendall(data)
            return read_all(s)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        connection.request(method, path, body, JSON if headers is None else headers)
        reply = connection.getresponse()
        result = reply.status, reply.headers, reply.read()
        connection.close()
        return result

    def get(self, path):
        status, _, body = self.ask("GET", path)
        assert status == 200, (path, status)
        return json.loads(body)

    def text(self, prompt, **more):
        status, _, body = self.ask("POST", "/v1/completions", dict(more, prompt=prompt))
        assert status == 200, (status, body)
        return json.loads(body)

    def chat(self, content, **more):
        status, _, body = self.ask("POST", "/v1/chat/completions", dict(more, messages=[{"role": "user", "content": content}]))
        assert status == 200, (status, body)
        return json.loads(body)

    def reach(self, running, waiting=0, seconds=20):
        """Waits until so many requests run and wait."""
        end = time.time() + seconds
        while time.time() < end:
            status, _, body = self.ask("GET", "/health")
            health = json.loads(body)
            if status == 200 and (health["running"], health["waiting"]) == (running, waiting):
                return
            time.sleep(0.02)
        raise AssertionError("not %d running and %d waiting: %s" % (running, waiting, health))

    def idle(self, seconds=20):
        self.reach(0, 0, seconds)

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid)) if os.path.isdir("/proc") else 0

    def resident(self):
        """KiB"""
        with open("/proc/%d/status" % self.process.pid) as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def read_all(s):
    data = b""
    try:
        while True:
            got = s.recv(65536)
            if not got:
                return data
            data += got
    except OSError:
        return data


def read_response(s, rest=b""):
    """(status, headers, body, what follows) of one response on a socket."""
    while b"\r\n\r\n" not in rest:
        got = s.recv(65536)
        assert got, ("the connection ended in a head", rest)
        rest += got
    head, rest = rest.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    status = int(lines[0].split()[1])
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    if status == 100:
        return status, headers, b"", rest
    size = int(headers["content-length"])
    while len(rest) < size:
        got = s.recv(65536)
        assert got, "the connection ended in a body"
        rest += got
    return status, headers, rest[:size], rest[size:]


def post(body, path="/v1/completions", more="", host="localhost"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
            % (path, host, more, len(body))).encode() + body


def status_of(reply):
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else None


def events(body):
    """The JSON of each event; the last one has to be [DONE]."""
    parts = body.decode().split("\n\n")
    assert parts[-1] == "" and parts[-2] == "data: [DONE]", parts[-3:]
    return [json.loads(part[len("data: "):]) for part in parts[:-2]]


def joined(found):
    choices = [event["choices"][0] for event in found if event["choices"]]
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1) and choices[-1]["finish_reason"]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices), choices[-1]["finish_reason"]


# ---- what each request gets


def test_routes():
    with Server() as s:
        status, headers, body = s.ask("GET", "/")
        assert status == 200 and headers["Content-Type"].startswith("text/html") and b"innerHTML" not in body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert s.get("/health") == {"status": "ok", "running": 0, "waiting": 0}
        models = s.get("/v1/models")
        assert models["object"] == "list" and models["data"][0]["id"] == s.name
        assert s.ask("GET", "/health?x=1")[0] == 200
        status, headers, body = s.ask("HEAD", "/health")
        assert status == 200 and int(headers["Content-Length"]) > 0 and body == b""
        for method, path, code, allow in (("GET", "/nothing", 404, None), ("GET", "/v1/completions", 405, "POST"), ("POST", "/health", 405, "GET, HEAD"),
                                          ("DELETE", "/", 405, "GET, HEAD"), ("OPTIONS", "/v1/models", 405, "GET, HEAD"),
                                          ("HEAD", "/v1/completions", 405, "POST"), ("GET", "/v1/models/", 404, None)):
            status, headers, body = s.ask(method, path)
            assert status == code and headers["Allow"] == allow, (method, path, status)
            assert method == "HEAD" or json.loads(body)["error"]["code"] == code


def test_page():
    """The page, run by node: its answers, tokens a second, the queue, and probabilities on hover."""
    if not shutil.which("node"):
        print("skip: serve: page: there is no node")
        return
    with Server("--context", 9000, step=4) as s:
        done = subprocess.run(["node", os.path.join(os.path.dirname(os.path.abspath(__file__)), "page_test.js"), "http://" + s.host], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]


def test_text():
    with Server("--context", 200) as s:
        reply = s.text("abc", max_tokens=100)
        assert reply["object"] == "text_completion" and reply["model"] == s.name
        assert reply["choices"] == [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "stop"}]
        assert reply["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
        reply = s.text("x" * 50)
        assert reply["choices"][0]["text"] == "x" * 16 and reply["choices"][0]["finish_reason"] == "length"
        reply = s.text("#9" + "y" * 100, max_tokens=1000)  # up to the end of the context
        assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["total_tokens"] == 200
        reply = s.text([ord("h"), ord("i")], max_tokens=9)
        assert reply["choices"][0]["text"] == "hi" and reply["usage"]["prompt_tokens"] == 2
        assert s.text("<think>a</think> b<|START_RESPONSE|>", max_tokens=99)["choices"][0]["text"] == "<think>a</think> b<|START_RESPONSE|>"
        assert s.text(["one"], max_tokens=9)["choices"][0]["text"] == "one"
        everything = "".join(map(chr, [*range(1, 0x30), 0x7F, 0x80, 0x7FF, 0x800, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF]))
        assert s.text(everything, max_tokens=150)["choices"][0]["text"] == everything
        status, _, body = s.ask("POST", "/v1/completions", '{"prompt": "%s", "max_tokens": 150}' % everything.translate(
            {i: "\\u%04x" % i for i in [*range(32), 34, 92]}).replace("\U0001F600", "\\ud83d\\uDe00"))
        assert status == 200 and json.loads(body)["choices"][0]["text"] == everything, body
        assert s.text("é", max_tokens=1)["choices"][0]["text"] == "\uFFFD"  # half a character
        chosen = s.text("abc", max_tokens=3, logit_bias={"122": 100, "97": -100})
        assert chosen["choices"][0]["text"] == "zzz"
        log = s.text("aé", max_tokens=9, logprobs=0)["choices"][0]["logprobs"]
        assert log["tokens"] == ["a", "\uFFFD", "\uFFFD"] and log["token_logprobs"] == [-0.5] * 3 and log["text_offset"] == [0, 1, 1]
        drawn = [s.text("a", temperature=2, seed=seed, max_tokens=20)["choices"][0]["text"] for seed in (1, 1, 2, -5)]
        assert drawn[0] == drawn[1] and len(set(drawn)) == 3 and len(drawn[0]) == 20
        assert s.text("a", temperature=2, max_tokens=20)["choices"] != s.text("a", temperature=2, max_tokens=20)["choices"]


def test_stops():
    with Server() as s:
        for prompt, stop, text, why in (("abcdef", "cd", "ab", "stop"), ("abcdef", ["x", "ef"], "abcd", "stop"), ("abcab", "abd", "abcab", "stop"),
                                        ("aaab", "aab", "a", "stop"), ("abcd", ["bcdX", "c"], "ab", "stop"), ("abc", "a", "", "stop"),
                                        ("日本語", "本", "日", "stop"), ("abc", None, "abc", "stop"), ("abcabd", ["abd"], "abc", "stop"),
                                        ("abcdefgh", "gh", "abcdef", "stop"), ("#5ab", "bab", "a", "stop"), ("#50ab-", "x", "ab-" * 10, "length")):
            for stream in (False, True):
                status, _, body = s.ask("POST", "/v1/completions", {"prompt": prompt, "stop": stop, "max_tokens": 30, "stream": stream})
                assert status == 200
                if stream:
                    found = joined(events(body))
                else:
                    choice = json.loads(body)["choices"][0]
                    found = choice["text"], choice["finish_reason"]
                assert found == (text, why), (prompt, stop, found)


def test_chat():
    with Server() as s:
        reply = s.chat("hello")
        assert reply["object"] == "chat.completion"
        assert reply["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "logprobs": None, "finish_reason": "stop"}]
        parts = [{"type": "text", "text": "o\u00e9ne "}, {"text": "tw\no", "type": "text"}, {"type": "text", "text": ""}, {"type": "text", "text": "!"}]
        assert s.chat(parts)["choices"][0]["message"]["content"] == "o\u00e9ne tw\no!"
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [
            {"role": "developer", "content": "be brief"}, {"content": "hi", "role": "user"}, {"role": "assistant", "content": "yes", "name": "x"},
            {"role": "user", "content": "now"}], "max_completion_tokens": 3, "user": "me", "n": 1, "tools": [], "stop": None, "model": s.name,
            "response_format": {"type": "text"}, "presence_penalty": 0, "tool_choice": "auto"})
        reply = json.loads(body)
        assert status == 200 and reply["choices"][0]["message"]["content"] == "now" and reply["choices"][0]["finish_reason"] == "length", body
        assert reply["usage"]["prompt_tokens"] == len("system: be brief\nuser: hi\nassistant: yes\n") + 1 + 3
        content = s.chat("hé", logprobs=True, top_logprobs=0)["choices"][0]["logprobs"]["content"]
        assert [c["bytes"] for c in content] == [[104], [195], [169]] and content[0] == {"token": "h", "logprob": -0.5, "bytes": [104], "top_logprobs": []}
    with Server(env={"SERVE_NO_TEMPLATE": "1"}) as s:
        assert s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})[0] == 400


def test_formats():
    with Server() as s:
        schema = {"type": "object", "properties": {"a\"\u00e9": {"enum": ["x\n", 1.5, -3, 0.1, 1e300, None, True, [], {}, [1, {"b": False}]]}}}
        for given, expected in (({"type": "json_object"}, {"type": "object"}), ({"type": "json_schema", "json_schema": {"name": "n", "strict": True,
                                "schema": schema}}, schema), ({"type": "json_schema", "json_schema": {"schema": {}}}, {})):
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "response_format": given})
            said = json.loads(body)["choices"][0]
            assert status == 200 and json.loads(said["message"]["content"]) == expected and said["finish_reason"] == "stop", body


def test_streams():
    with Server(step=2) as s:
        text = "Grüße, 日本 \U0001F600 \"quoted\" \\ \n"
        for path, body in (("/v1/completions", {"prompt": text, "max_tokens": 100, "stream": True}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": True})):
            status, headers, data = s.ask("POST", path, body)
            found = events(data)
            assert status == 200 and headers["Content-Type"] == "text/event-stream" and headers["Transfer-Encoding"] == "chunked"
            assert joined(found) == (text, "stop") and len({event["id"] for event in found}) == 1 and len(found) > 5
            assert not any("usage" in event for event in found)
            found = events(s.ask("POST", path, dict(body, stream_options={"include_usage": True}))[2])
            assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == len(text.encode())
            assert all(event["usage"] is None for event in found[:-1])
        chat = events(s.ask("POST", path, dict(body, logprobs=True))[2])
        assert chat[0]["choices"][0]["delta"]["role"] == "assistant" and "role" not in chat[1]["choices"][0]["delta"]
        assert bytes(b for event in chat for c in (event["choices"][0]["logprobs"] or {"content": []})["content"] for b in c["bytes"]).decode() == text
        # a stream that says nothing: the first event is the last one
        assert joined(events(s.ask("POST", "/v1/completions", {"prompt": "abc", "stop": "a", "stream": True})[2])) == ("", "stop")
        silent = events(s.ask("POST", path, dict(body, stop="G"))[2])
        assert joined(silent) == ("", "stop") and silent[0]["choices"][0]["delta"]["role"] == "assistant"
        # HTTP/1.0: the end of the connection is the end
        data = json.dumps({"prompt": "abc", "stream": True}).encode()
        reply = s.raw(b"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
        head, rest = reply.split(b"\r\n\r\n", 1)
        assert b"chunked" not in head and b"Connection: close" in head and joined(events(rest)) == ("abc", "stop")


REFUSED = [
    ("", 400, None), ("{", 400, None), ("[]", 400, None), ("null", 400, None), ("{} {}", 400, None), ('{"prompt": "a",}', 400, None),
    ('{"prompt": "a", "prompt": "b"}', 400, None), ('{"prompt": "\\ud800"}', 400, None), ('{"prompt": "\\udc00\\ud800"}', 400, None),
    ('{"prompt": "\\u0000"}', 400, None), ('{"prompt": "\\x"}', 400, None), ('{"prompt": "\n"}', 400, None), ('{"prompt": "a', 400, None),
    (b'{"prompt": "\xff"}', 400, None), (b'{"prompt": "\xed\xa0\x80"}', 400, None), (b'{"prompt": "\xc0\x80"}', 400, None),
    (b'{"prompt": "\xf4\x90\x80\x80"}', 400, None), (b'\xef\xbb\xbf{"prompt": "a"}', 400, None), (b'{"prompt": "a"}\0', 400, None),
    ('{"prompt": "a", "seed": 01}', 400, None), ('{"prompt": "a", "seed": +1}', 400, None), ('{"prompt": "a", "seed": 1.}', 400, None),
    ('{"prompt": "a", "seed": .5}', 400, None), ('{"prompt": "a", "seed": 1e999}', 400, None), ('{"prompt": "a", "seed": NaN}', 400, None),
    ('{"prompt": "a", "seed": 0x10}', 400, None), ('{"prompt": "a", "seed": -}', 400, None), ("[" * 100000, 400, None), ('{"a":' * 50, 400, None),
    ('{"prompt": "a", "seed": tru}', 400, None), ("{'prompt': 'a'}", 400, None), ('{"prompt" "a"}', 400, None), ('{"prompt": "a" "b": 1}', 400, None),
    ("{%s}" % ",".join('"k%d":1' % i for i in range(2000)), 400, None), ("[%s]" % ("1," * 500000 + "1"), 400, None),
    ({}, 400, "prompt"), ({"prompt": None}, 400, "prompt"), ({"prompt": 1}, 400, "prompt"), ({"prompt": []}, 400, "prompt"),
    ({"prompt": ["a", 1]}, 400, "prompt"), ({"prompt": [[1], []]}, 400, "prompt"), ({"prompt": [1.5]}, 400, "prompt"), ({"prompt": ["a"] * 129}, 400, "prompt"),
    ({"prompt": [-1]}, 400, "prompt"), ({"prompt": [258]}, 400, "prompt"), ({"prompt": {"a": 1}}, 400, "prompt"), ({"prompt": [1, "a"]}, 400, "prompt"),
    ({"prompt": "x" * 5000}, 400, "prompt"), ({"prompt": "!prompt"}, 500, None), ({"prompt": "!fail"}, 500, None),
    ({"prompt": "a", "temperature": "1"}, 400, "temperature"), ({"prompt": "a", "temperature": -0.1}, 400, "temperature"),
    ({"prompt": "a", "temperature": 2.1}, 400, "temperature"), ({"prompt": "a", "top_p": 1.5}, 400, "top_p"), ({"prompt": "a", "top_k": 1.5}, 400, "top_k"),
    ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens"), ({"prompt": ["a", "b"], "n": 100}, 400, "n"), ({"prompt": "a", "max_tokens": 1e30}, 400, "max_tokens"),
    ({"prompt": "a", "seed": 1e300}, 400, "seed"), ({"prompt": "a", "stream": 1}, 400, "stream"), ({"prompt": "a", "stream": "yes"}, 400, "stream"),
    ({"prompt": "a", "n": 0}, 400, "n"), ({"prompt": "a", "n": 1000}, 400, "n"), ({"prompt": "a", "best_of": 3}, 400, "best_of"), ({"prompt": "a", "echo": 1}, 400, "echo"),
    ({"prompt": "a", "suffix": "b"}, 400, "suffix"), ({"prompt": "a", "presence_penalty": 2.5}, 400, "presence_penalty"),
    ({"prompt": "a", "logprobs": 21}, 400, "logprobs"), ({"prompt": "a", "logprobs": True}, 400, "logprobs"),
    ({"prompt": "a", "grammar": 1}, 400, "grammar"), ({"prompt": "a", "grammar": "pattern"}, 400, "grammar"), ({"prompt": "a", "json_schema": "x"}, 400, "json_schema"),
    ({"prompt": "a", "grammar": "x", "json_schema": {}}, 400, "grammar"),
    ({"prompt": "a", "stop": 1}, 400, "stop"), ({"prompt": "a", "stop": ""}, 400, "stop"), ({"prompt": "a", "stop": ["a", 1]}, 400, "stop"),
    ({"prompt": "a", "stop": ["a"] * 17}, 400, "stop"), ({"prompt": "a", "stop": "x" * 2000}, 400, "stop"), ({"prompt": "a", "stop": {"a": "b"}}, 400, "stop"),
    ({"prompt": "a", "logit_bias": [1]}, 400, "logit_bias"), ({"prompt": "a", "logit_bias": {"a": 1}}, 400, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"1": 101}}, 400, "logit_bias"), ({"prompt": "a", "logit_bias": {"1": "2"}}, 400, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"999": 1}}, 400, "logit_bias"), ({"prompt": "a", "logit_bias": {"1": 1, "01": 2}}, 400, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"": 1}}, 400, "logit_bias"), ({"prompt": "a", "stream_options": 1}, 400, "stream_options"),
    ({"prompt": "a", "model": 7}, 400, "model"),
]

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "g"}}]

REFUSED_CHATS = [
    ({}, "messages"), ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [1]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"), ({"messages": [{"content": "a"}]}, "messages"),
    ({"messages": [{"role": "user", "content": []}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages"),
    ({"messages": [{"role": "user", "content": 42}]}, "messages"), ({"messages": [{"role": "user", "content": True}]}, "messages"),
    ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages"), ({"messages": [{"role": 1, "content": "a"}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 42}]}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}, "messages"), ({"messages": [{"role": "function", "content": "a"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "!template"}]}, "messages"),
    ({"tools": [{"type": "function"}]}, "tools"), ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": "text"}, "response_format"), ({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "a"}}}}, "response_format"),
    ({"top_logprobs": 2}, "top_logprobs"), ({"reasoning_effort": 7}, "reasoning_effort"), ({"logprobs": 1}, "logprobs"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"), ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"), ({"tools": 7}, "tools"), ({"tools": [{}]}, "tools"), ({"functions": [1]}, "functions"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"), ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools"), ({"tools": TOOLS * 80}, "tools"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"), ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"), ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"pattern": "x"}}}], "tool_choice": "required"}, "tools"),
]


def test_refused():
    with Server("--connections", 32) as s:
        cases = [("/v1/completions", *case) for case in REFUSED]
        cases += [("/v1/chat/completions", dict(body, **({} if name == "messages" or "messages" in body else {"messages": [{"role": "user", "content": "a"}]})), 400, name)
                  for body, name in REFUSED_CHATS]
        for path, body, code, name in cases:
            status, _, data = s.ask("POST", path, body)
            assert status == code, (body if len(str(body)) < 300 else str(body)[:300], status, data[:300])
            error = json.loads(data)["error"]
            assert error["code"] == code and error["message"] and error["param"] == name, (str(body)[:300], error)
            assert error["type"] == ("server_error" if code == 500 else "invalid_request_error")
        assert s.text("fine")["choices"][0]["text"] == "fine"


# ---- values of each kind in each field

VALUES = [None, True, False, 0, 1, -1, 1.5, 1e300, 99999999999999999999, "", "a", "NaN", "x" * 3000, "\u00e9\n" * 99, [], {}, [None], [1], [-1], [1.5], [""], ["a"], ["a", 1],
          [[]], [{}], {"a": None}, {"a": 1}, {"1": 1}, {"1": "1"}, {"1": 1e9}]


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def number(low, high):
    return lambda v: is_number(v) and low <= v <= high


def integer(low, high):
    return lambda v: is_number(v) and low <= v <= high and v == int(v)


def is_ids(v):
    return isinstance(v, list) and v != [] and all(is_number(i) and i == int(i) and 0 <= i < 258 for i in v)


def is_texts(v):
    return isinstance(v, str) or is_ids(v) or (isinstance(v, list) and v != [] and all(isinstance(i, str) or is_ids(i) for i in v))


def is_string(v):
    return isinstance(v, str)


def is_flag(v):
    return isinstance(v, bool)


def is_object(v):
    return isinstance(v, dict)


def is_stop(v):
    return isinstance(v, str) and 0 < len(v.encode()) <= 1000 or isinstance(v, list) and all(isinstance(i, str) and 0 < len(i) <= 1000 for i in v)


def is_bias(v):
    return isinstance(v, dict) and all(k.isdigit() and is_number(n) and -100 <= n <= 100 for k, n in v.items())


def anything(v):
    return True


def nothing(v):
    return v in ("", False, [], {}) or (is_number(v) and v == 0)


def is_seed(v):
    return isinstance(v, int) and not isinstance(v, bool) and -2 ** 63 <= v < 2 ** 64


SAMPLING = {"temperature": number(0, 2), "top_p": number(0, 1), "top_k": integer(0, 1e9), "min_p": number(0, 1), "repetition_penalty": number(0.01, 100),
            "repeat_penalty": number(0.01, 100), "presence_penalty": number(-2, 2), "frequency_penalty": number(-2, 2), "stream": is_flag, "seed": is_seed,
            "model": is_string, "user": anything, "metadata": anything, "nothing_that_is_known": anything}
GRAMMARS = {"stop": is_stop, "logit_bias": is_bias, "grammar": is_string, "json_schema": is_object}
# [the path, a request that is right, {a field: the values that are right, besides null}, fields that may not be null]
FIELDS = [
    ["/v1/completions", {"prompt": "a"}, dict(SAMPLING, **GRAMMARS, **{
        "prompt": is_texts, "max_tokens": integer(0, 1e9), "n": integer(1, 128), "logprobs": integer(0, 20), "echo": is_flag, "best_of": lambda v: is_number(v) and v == 1 or v is False or v in ("", [], {}),
        "suffix": nothing, "stream_options": is_object, "stream_options.include_usage": is_flag, "response_format": lambda v: False, "response_format.type": lambda v: False}), ["prompt", "response_format.type"]],
    ["/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, dict(SAMPLING, **GRAMMARS, **{
        "max_tokens": integer(1, 1e9), "max_completion_tokens": integer(1, 1e9), "n": integer(1, 128), "logprobs": is_flag, "top_logprobs": lambda v: is_number(v) and v == 0,
        "parallel_tool_calls": is_flag, "messages": lambda v: False, "messages.0": lambda v: False, "messages.0.role": lambda v: False,
        "messages.0.content": is_string, "messages.0.name": is_string, "messages.0.tool_call_id": is_string, "messages.0.reasoning_content": is_string,
        "messages.0.tool_calls": lambda v: v == [], "tools": lambda v: v == [], "tool_choice": lambda v: False, "reasoning_effort": is_string, "chat_template_kwargs": is_object,
        "functions": nothing, "modalities": nothing, "audio": nothing, "web_search_options": nothing, "stream_options": is_object, "response_format": lambda v: False}),
     ["messages", "messages.0", "messages.0.role", "messages.0.content"]],
    ["/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": TOOLS[1:]}, {
        "messages.0.content.0": lambda v: False, "messages.0.content.0.type": lambda v: False, "messages.0.content.0.text": is_string, "tools.0": lambda v: False,
        "tools.0.type": lambda v: False, "tools.0.function": lambda v: False, "tools.0.function.name": lambda v: v in ("a", "NaN"), "tools.0.function.parameters": is_object,
        "tools.0.function.description": anything},
     ["messages.0.content.0", "messages.0.content.0.type", "messages.0.content.0.text", "tools.0", "tools.0.type", "tools.0.function", "tools.0.function.name"]],
    ["/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS[1:], "tool_choice": {"type": "function", "function": {"name": "g"}}}, {
        "tool_choice.function": lambda v: False, "tool_choice.function.name": lambda v: False}, ["tool_choice.function", "tool_choice.function.name"]],
    ["/v1/responses", {"input": "a"}, dict(SAMPLING, **{
        "input": lambda v: is_string(v), "instructions": is_string, "max_output_tokens": integer(1, 1e9), "parallel_tool_calls": is_flag, "tools": lambda v: v == [],
        "tool_choice": lambda v: False, "text": is_object, "text.format": lambda v: False, "text.format.type": lambda v: False, "reasoning": is_object, "reasoning.effort": is_string,
        "previous_response_id": nothing, "include": lambda v: isinstance(v, list), "background": nothing, "conversation": nothing}), ["input", "text.format.type"]],
    ["/v1/embeddings", {"input": "a"}, {"input": is_texts, "encoding_format": lambda v: False, "dimensions": nothing, "model": is_string}, ["input"]],
    ["/completion", {"prompt": "a"}, dict(SAMPLING, **GRAMMARS, **{
        "prompt": is_texts, "n_predict": integer(-2, 1e9), "n_probs": integer(0, 20), "seed": lambda v: is_seed(v) or v == -1, "cache_prompt": anything}), ["prompt"]],
    ["/tokenize", {"content": "a"}, {"content": is_string, "add_special": is_flag, "with_pieces": is_flag, "model": anything}, ["content"]],
    ["/detokenize", {"tokens": [97]}, {"tokens": lambda v: v == [] or is_ids(v)}, ["tokens"]],
]


def placed(body, path, value):
    """A copy of a body with a value at a path as "messages.0.role"."""
    body = json.loads(json.dumps(body))
    at, steps = body, path.split(".")
    for here, below in zip(steps, steps[1:]):
        here = int(here) if isinstance(at, list) else here
        if not isinstance(at, list) and here not in at:
            at[here] = {}
        at = at[here]
    at[int(steps[-1]) if isinstance(at, list) else steps[-1]] = value
    return body


def test_values():
    """Values of each kind in each field: taken, or refused with a message that names the field, the value and what was expected."""
    asked = refused = 0
    with Server("--context", 5000) as s:
        with s.connect() as c:
            for path, body, fields, required in FIELDS:
                for field, is_right in fields.items():
                    for value in VALUES:
                        right = is_right(value) if value is not None else field not in required
                        ask = placed(dict(body, **({"max_tokens": 2} if "max_tokens" in fields and field != "max_tokens" else {})), field, value)
                        c.sendall(post(ask, path, "Connection: close\r\n" if ask.get("stream") is True else ""))
                        asked += 1
                        if ask.get("stream") is True:
                            assert status_of(read_all(c)) == 200
                            c = s.connect()
                            continue
                        status, _, reply, rest = read_response(c)
                        assert status == (200 if right else 400) and not rest, (path, field, value, status, reply)
                        if right:
                            continue
                        refused += 1
                        error, top = json.loads(reply)["error"], field.split(".")[0]
                        assert error["param"] == top and error["message"].startswith(top), (path, field, value, error)
                        assert "expected" in error["message"] or "not supported" in error["message"], (path, field, value, error)
                        shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                        simple = "." not in field and not isinstance(value, (list, dict)) and value is not None and "supported" not in error["message"]
                        assert not simple or shown[:30] in error["message"] or is_number(value) or value == "", (path, field, value, error)
                        assert len(error["message"]) < 400, error
                for text in ("NaN", "Infinity", "-Infinity", "1e999", "01", "0x1", "1_0", "nan", "'a'", "undefined"):
                    data = json.dumps(dict(body, user="@")).replace('"@"', text).encode()
                    c.sendall(post(data, path))
                    status, _, reply, _ = read_response(c)
                    assert status == 400 and "not JSON" in json.loads(reply)["error"]["message"], (path, text, status, reply)
        assert s.text("fine")["choices"][0]["text"] == "fine"
    assert asked > 2500 and refused > 1500, (asked, refused)
    print("     %d values, of which %d are refused" % (asked, refused))


def test_choices():
    """Several prompts, n above 1, penalties, the likeliest tokens, echo."""
    with Server(step=1) as s:
        reply = s.text(["ab", [99, 100], "e"], max_tokens=9, n=2)
        assert [c["index"] for c in reply["choices"]] == list(range(6))
        assert [c["text"] for c in reply["choices"]] == ["ab", "ab", "cd", "cd", "e", "e"]
        assert reply["usage"] == {"prompt_tokens": 3 + 2 + 2, "completion_tokens": 10, "total_tokens": 17}
        drawn = [c["text"] for c in s.text("a", temperature=2, seed=7, max_tokens=20, n=3)["choices"]]
        assert len(set(drawn)) == 3 and drawn[1] == s.text("a", temperature=2, seed=8, max_tokens=20)["choices"][0]["text"]
        for path, body in (("/v1/completions", {"prompt": ["ab", "cde"], "n": 2}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}], "n": 3})):
            found = events(s.ask("POST", path, dict(body, stream=True, stream_options={"include_usage": True}))[2])
            assert found[-1]["choices"] == [] and found[-1]["usage"]["total_tokens"]
            texts, ends, roles = {}, {}, {}
            for choice in (event["choices"][0] for event in found[:-1]):
                at = choice["index"]
                texts[at] = texts.get(at, "") + (choice["delta"].get("content", "") if "delta" in choice else choice["text"])
                ends[at] = ends.get(at, 0) + (choice["finish_reason"] == "stop")
                roles[at] = roles.get(at, 0) + ("role" in choice.get("delta", {}))
            assert texts == ({0: "ab", 1: "ab", 2: "cde", 3: "cde"} if "prompt" in body else {0: "ab", 1: "ab", 2: "ab"}), texts
            assert set(ends.values()) == {1} and set(roles.values()) == {0 if "prompt" in body else 1}
        # A penalty is a bias: the fake says _ for a token with a bias of -1 or less.
        for more, text in (({"frequency_penalty": 0.5}, "aabb_____"), ({"frequency_penalty": 0.25, "presence_penalty": 0.75}, "a_b______"), ({"presence_penalty": 1}, "a_b______"), ({"frequency_penalty": 0.25, "presence_penalty": 0.5}, "aabb_____"),
                           ({"frequency_penalty": 0.5, "logit_bias": {"97": -0.5}}, "a_bb_____"), ({}, "aabbaabba")):
            said = s.text("#9aabb", max_tokens=9, **more)["choices"][0]["text"]
            assert said == text, (more, said)
        log = s.text("ab", max_tokens=2, logprobs=3)["choices"][0]["logprobs"]
        assert log["tokens"] == ["a", "b"] and [list(t) for t in log["top_logprobs"]] == [["a", "b", "c"]] * 2 and -0.5 < log["top_logprobs"][0]["a"] < -0.4
        content = s.chat("ab", logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
        assert [[t["token"] for t in c["top_logprobs"]] for c in content] == [["a", "b"]] * 2 and content[0]["top_logprobs"][0]["bytes"] == [97]
        reply = s.text([97, 98, 99], max_tokens=0, echo=True, logprobs=1)  # as lm-eval asks
        choice = reply["choices"][0]
        assert choice["text"] == "abc" and choice["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 0
        assert choice["logprobs"] == {"tokens": ["a", "b", "c"], "token_logprobs": [None, -0.25, -0.25], "text_offset": [0, 1, 2],
                                      "top_logprobs": [None, {"a": -0.25}, {"a": -0.25}]}, choice
        choice = s.text("xy", max_tokens=1, echo=True, logprobs=0)["choices"][0]
        assert choice["text"] == "xyx" and choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.25, -0.5] and choice["logprobs"]["top_logprobs"] is None
        none = s.text("xy", max_tokens=0)
        assert none["choices"][0]["text"] == "" and none["choices"][0]["finish_reason"] == "length" and none["usage"]["total_tokens"] == 3
        assert s.text("xy", max_tokens=1, echo=True)["choices"][0]["text"] == "xyx"


def test_ignored():
    with Server() as s:
        status, headers, body = s.ask("POST", "/v1/completions", {"prompt": "a", "temperatur": 1, "mirostat": 2, "b\r\nX: 1": 1, "model": "gpt-4"})
        assert status == 200 and headers["X-Ignored"] == "temperatur, mirostat, b" and headers["X"] is None, headers
        assert json.loads(body)["model"] == s.name
        assert s.ask("POST", "/v1/completions", {"prompt": "a", "user": "me"})[1]["X-Ignored"] is None


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern\\n"}}\n</tool_call>'


def merged(found):
    """The message that the events of a stream make."""
    message, why = {"content": "", "tool_calls": []}, None
    for choice in (event["choices"][0] for event in found):
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            if delta.get(key):
                message[key] = message.get(key, "") + delta[key]
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["tool_calls"]):
                assert call["id"] and call["type"] == "function" and call["function"]["name"]
                message["tool_calls"].append({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}})
            message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        why = choice["finish_reason"] or why
    return message, why


def test_tools():
    with Server("--context", 9000) as s:
        for text, content, calls, why in ((CALL, None, 1, "tool_calls"), ("Let me see. " + CALL + "\n" + CALL, "Let me see. ", 2, "tool_calls"),
                                          ("<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>", 0, "stop"),
                                          ("plain", "plain", 0, "stop"), ("<tool_call>\n{\"name\": \"g\"}\n</tool_call> then", " then".strip(), 1, "tool_calls")):
            for stream in (False, True):
                ask = {"messages": [{"role": "user", "content": text}], "tools": TOOLS, "stream": stream}
                status, _, body = s.ask("POST", "/v1/chat/completions", ask)
                assert status == 200, body
                if stream:
                    message, found = merged(events(body))
                    assert message["content"] == (content or ""), message
                else:
                    message, found = json.loads(body)["choices"][0]["message"], json.loads(body)["choices"][0]["finish_reason"]
                    assert message["content"] == content and message["role"] == "assistant", message
                made = message.get("tool_calls", [])
                assert len(made) == calls and found == why and len({c["id"] for c in made}) == calls, (message, found)
                for call in made:
                    assert re.fullmatch("[a-z0-9]{9}", call["id"])
                    assert call["function"]["name"] == "g" or json.loads(call["function"]["arguments"]) == {"city": "Bern\n"}, call
        # cut in the middle of a call
        choice = s.chat(CALL, tools=TOOLS, max_tokens=60)["choices"][0]
        assert choice["finish_reason"] == "length" and choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"city"'), choice
        # without tools, and with "none", it is text, and the template hears of no tools
        assert s.chat(CALL)["choices"][0]["message"] == {"role": "assistant", "content": CALL}
        assert s.chat(CALL, tools=TOOLS, tool_choice="none")["choices"][0]["message"] == {"role": "assistant", "content": CALL}
        # a forced call: the fake says its grammar, which is the schema of the arguments, or the first name
        for choice, name in (("required", "get_weather"), ({"type": "function", "function": {"name": "g"}}, "g"), ({"type": "function", "function": {"name": "get_weather"}}, "get_weather")):
            for stream in (False, True):
                body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": choice, "stream": stream})[2]
                message, why = merged(events(body)) if stream else (json.loads(body)["choices"][0]["message"], json.loads(body)["choices"][0]["finish_reason"])
                call = message["tool_calls"][0]["function"]
                schema = TOOLS[0]["function"]["parameters"] if name == "get_weather" else {"type": "object", "additionalProperties": False}
                assert call["name"] == name and json.loads(call["arguments"]) == schema and why == "tool_calls" and len(message["tool_calls"]) == 1, message
        # messages of earlier calls, as the template gets them
        talk = [{"role": "user", "content": "w?"}, {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "abc", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"B\\u00e9\"}"}}]},
            {"role": "tool", "tool_call_id": "abc", "content": "rain"}, {"role": "user", "content": "!variables"}]
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": talk, "tools": TOOLS, "reasoning_effort": "none", "chat_template_kwargs": {"x": [1, {"y": None}]}})
        told = json.loads(json.loads(body)["choices"][0]["message"]["content"])
        assert told["messages"][1] == {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
            {"type": "function", "id": "abc", "function": {"name": "get_weather", "arguments": {"city": "B\u00e9"}}}]}, told
        assert told["messages"][2] == {"role": "tool", "content": "rain", "tool_call_id": "abc"} and told["tools"] == TOOLS
        assert told["reasoning_effort"] == "none" and told["enable_thinking"] is False and told["x"] == [1, {"y": None}]
    # a template that knows no tools: they are written into the system's message
    with Server("--context", 9000, env={"SERVE_PROBE": "nothing"}) as s:
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."}] + talk, "tools": TOOLS})
        told = json.loads(json.loads(body)["choices"][0]["message"]["content"])
        assert "tools" not in told and told["messages"][0]["content"].startswith("Be brief.\n\n# Tools") and "get_weather" in told["messages"][0]["content"]
        assert told["messages"][2]["content"] == '\n<tool_call>\n{"name": "get_weather", "arguments": {"city":"B\u00e9"}}\n</tool_call>' and "tool_calls" not in told["messages"][2]
        assert told["messages"][3] == {"role": "user", "content": "<tool_response>\nrain\n</tool_response>", "tool_call_id": "abc"}, told
        assert s.chat(CALL, tools=TOOLS)["choices"][0]["finish_reason"] == "tool_calls"
    # a template that writes calls, and no tools
    with Server("--context", 9000, env={"SERVE_PROBE": "<｜tool▁call▁begin｜>the-name<｜tool▁sep｜>v1 the_result <｜tool▁call▁begin｜>function"}) as s:
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": talk, "tools": TOOLS})
        told = json.loads(json.loads(body)["choices"][0]["message"]["content"])
        assert told["messages"][0]["content"].endswith("function<｜tool▁sep｜><function-name>\n```json\n<args-json-object>") and "tools" not in told, told
        assert told["messages"][2]["tool_calls"][0]["function"]["name"] == "get_weather" and told["messages"][3]["role"] == "tool"
    # each family's form, as its template has it
    for probe, text in (('[TOOL_CALLS][{"name": "the_name"', '[TOOL_CALLS][{"name": "g", "arguments": {}}]'), ('{"name": "the_name", "parameters": {"the_key": "v1"}}', '{"name": "g", "parameters": {}}'),
                        ("<|channel|>commentary", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}"),
                        ("<function=the_name>\n<parameter=the_key>", "<tool_call>\n<function=g>\n</function>\n</tool_call>")):
        with Server(env={"SERVE_PROBE": "the_name v1 " + probe}) as s:
            message = s.chat(text, tools=TOOLS)["choices"][0]["message"]
            assert message["tool_calls"][0]["function"] == {"name": "g", "arguments": "{}"} and message["content"] is None, (probe, message)


# Probes of templates whose calls are keys and values, and what is said behind the beginning of a call of get_weather, and of any tool.
PAIRS = {
    "coder": ("<function=the_name>\n<parameter=the_key>", "<parameter=city>\n{}\n</parameter>\n</function>\n</tool_call>",
              "get_weather>\n<parameter=city>\n{}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>"),
    "seed": ("<seed:tool_call>", "<parameter=city>{}</parameter>\n</function>\n</seed:tool_call>",
             "get_weather>\n<parameter=city>{}</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n</function>\n</seed:tool_call>"),
    "glm": ("<arg_key>the_key</arg_key>\n<arg_value>", "<arg_key>city</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
            "get_weather\n<arg_key>city</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>"),
    "glm-4.7": ("<arg_key>the_key</arg_key><arg_value>", "<arg_key>city</arg_key><arg_value>{}</arg_value></tool_call>",
                "get_weather<arg_key>city</arg_key><arg_value>{}</arg_value></tool_call><tool_call>g</tool_call>"),
    "minimax": ("<minimax:tool_call>", "<parameter name=\"city\">{}</parameter>\n</invoke>\n</minimax:tool_call>",
                "get_weather\">\n<parameter name=\"city\">{}</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"),
    "dsml": ("<｜DSML｜invoke name=\"", "<｜DSML｜parameter name=\"city\" string=\"true\">{}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
             "get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">{}</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
    "hy": ("<tool_sep:opensource>", "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>{}</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
           "get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>{}</arg_value:opensource>\n</tool_call:opensource>\n"
           "<tool_call:opensource>g<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>"),
    "param": ("<function name=\"the_name\"", "<param name=\"city\">{}</param></function>", "get_weather\"><param name=\"city\">{}</param></function><function name=\"g\"></function>"),
}


def test_forced_pairs():
    """Calls that are forced in forms of keys and values: the beginning is the prompt's, the rest goes through the parser."""
    city = " a\n<b>\"12\""
    for form, (probe, one, several) in PAIRS.items():
        for said, choice, names in ((one, {"type": "function", "function": {"name": "get_weather"}}, ["get_weather"]), (several, "required", ["get_weather", "g"])):
            with Server("--context", 9000, env={"SERVE_PROBE": "the_name v1 " + probe, "SERVE_SAYS": said.replace("{}", city)}) as s:
                assert s.get("/props")["tool_calls"] == form
                for stream in (False, True):
                    body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": choice, "stream": stream, "n": 2})[2]
                    for index in range(2):
                        if stream:
                            message, why = merged([e for e in events(body) if e["choices"] and e["choices"][0]["index"] == index])
                            assert message["content"] == "", message
                        else:
                            message, why = (json.loads(body)["choices"][index][key] for key in ("message", "finish_reason"))
                            assert message["content"] is None, message
                        found = [c["function"] for c in message["tool_calls"]]
                        assert [f["name"] for f in found] == names and why == "tool_calls", (form, message)
                        assert json.loads(found[0]["arguments"]) == {"city": city} and (len(names) == 1 or found[1]["arguments"] == "{}"), (form, message)
                tool = [dict(t["function"], type="function") for t in TOOLS]
                reply = json.loads(s.ask("POST", "/v1/responses", {"input": "x", "tools": tool, "tool_choice": choice if choice == "required" else {"type": "function", "name": "get_weather"}})[2])
                assert [(o["type"], o["name"]) for o in reply["output"]] == [("function_call", n) for n in names] and json.loads(reply["output"][0]["arguments"]) == {"city": city}, reply
    with Server("--calls", "coder") as s:
        def refused(parameters, choice="required"):
            tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": choice})
            return json.loads(body)["error"]["message"] if status == 400 else ""
        for parameters, says in (({"properties": {"a>b": {}}}, "the parameter a>b of f cannot be told from the markers"), ({"properties": {"": {}}}, "cannot be told"),
                                 ({"properties": {}, "required": ["a>"]}, "the parameter a> of f"), ({"anyOf": [{"properties": {"a": {}}}]}, "have to be an object of properties"),
                                 ({"type": "array"}, "have to be an object of properties"), ({"properties": {"a": {"pattern": "x"}}}, "the parameters of f: the fake has failed")):
            assert says in refused(parameters), (parameters, refused(parameters))
            assert refused(parameters, "auto") == ""  # only a forced call has to be in the form
        for name in ("f>", "</tool_call>", "", "f" * 65):
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": name}}]})
            assert status == 400 and "tools[0].function.name is " in json.loads(body)["error"]["message"], body
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "parallel_tool_calls": 1})
        assert status == 400 and "expected true or false" in json.loads(body)["error"]["message"], body
    # values of calls that a model chose to make: the tool's schema says which ones are strings
    properties = {"s": {"type": "string"}, "m": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "i": {"type": ["integer", "string"]}, "b": {"type": "boolean"},
                  "r": {"$ref": "#/$defs/r"}, "e": {"enum": ["1", "x"]}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties, "$defs": {"r": {"oneOf": [{"type": "string"}]}}}}}]
    with Server("--calls", "coder") as s:
        for key, said, value in (("s", "12", "12"), ("s", "null", "null"), ("s", '"q"', '"q"'), ("s", "\na\n\n", "\na\n\n"), ("s", "True", "True"), ("m", "null", None), ("m", "12", "12"),
                                 ("i", "12", 12), ("i", "true", "true"), ("i", "None", "None"), ("b", "true", True), ("b", "True", True), ("b", "None", None), ("b", "no", "no"),
                                 ("r", "12", "12"), ("e", "1", "1"), ("z", "1", 1), ("z", "a", "a"), ("z", '{"a": "</parameter>", "b": [1]}', {"a": "</parameter>", "b": [1]}), ("z", "{a", "{a")):
            message = s.chat("<tool_call>\n<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>" % (key, said), tools=tools)["choices"][0]["message"]
            assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {key: value} and message["content"] is None, (key, said, message)
    # a template that knows no tools is told of the form
    with Server("--calls", "dsml", "--context", 9000, env={"SERVE_PROBE": "nothing"}) as s:
        told = json.loads(s.chat("!variables", tools=TOOLS)["choices"][0]["message"]["content"])
        assert told["messages"][0]["content"].endswith('<｜DSML｜invoke name="<function-name>">\n<｜DSML｜parameter name="<parameter-name-1>" string="true|false"><value-1></｜DSML｜parameter>\n'
                                                       '<｜DSML｜parameter name="<parameter-name-2>" string="true|false"><value-2></｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'), told


def test_reasoning():
    with Server() as s:
        text = "<think>\nHm.\n</think>\n\nYes."
        assert s.chat(text)["choices"][0]["message"] == {"role": "assistant", "reasoning_content": "Hm.\n", "content": "Yes."}
        message, why = merged(events(s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": True})[2]))
        assert message["reasoning_content"] == "Hm.\n" and message["content"] == "Yes." and why == "stop"
        assert s.chat("No <think> here")["choices"][0]["message"]["content"] == "No <think> here"
        # the prompt ends in open reasoning: the answer begins with it, but not where a grammar holds it
        message = s.chat("what</think>Yes.<think>")["choices"][0]["message"]
        assert message == {"role": "assistant", "reasoning_content": "what", "content": "Yes.<think>"}, message
        message = s.chat("what<think>", response_format={"type": "json_object"})["choices"][0]["message"]
        assert message == {"role": "assistant", "content": '{"type":"object"}'}, message


# Messages as published templates render them, and what the server writes of a forced call behind a prompt.
GAPS = [  # a message with reasoning and a call; one with reasoning and words; the question with the prompt's end; a message with a call; the content of a question; what follows it
    ("<think>\nthe_thought\n</think>\n\n<tool_call>", "<think>\nthe_thought\n</think>\n\nthe_words", "", "", "q<think>\n", "\n</think>\n\n<tool_call>"),  # Qwen3
    ("<think>the_thought</think>\n<tool_call>", "<think>the_thought</think>\nthe_words", "the_question<|a|>", "the_question<|a|>\n<think></think>\n<tool_call>", "q<think>", "</think>\n<tool_call>"),  # GLM
    ("<think>the_thought</think>\n<tool_call>", "<think>the_thought</think>\nthe_words", "the_question<|a|>", "the_question<|a|>\n<think></think>\n<tool_call>", "q<|a|>", "\n<think></think>\n<tool_call>"),
    ("<think>the_thought</think>\n<tool_call>", "<think>the_thought</think>\nthe_words", "the_question<|a|>", "the_question<|a|>\n<think></think>\n<tool_call>", "q</think>", "\n<tool_call>"),
    ("<think>\nthe_thought\n</think>\n\n\n<tool_call>", "<think>\nthe_thought\n</think>\n\nthe_words", "", "", "q<think>\n", "\n</think>\n\n\n<tool_call>"),  # MiniMax-M2
    ("<seed:think>the_thought</seed:think>\n<tool_call>", "<seed:think>the_thought</seed:think>\nthe_words", "", "", "q<seed:think>", "</seed:think>\n<tool_call>"),  # Seed
    ("<tool_call>", "the_words", "the_question<|a|></think>", "the_question<|a|></think><tool_call>", "q<think>", "</think><tool_call>"),  # DeepSeek 3.1 leaves reasoning out
    ("<tool_call>", "the_words", "the_question<|a|>", "the_question<|a|><tool_call>", "q<think>", "</think>\n\n<tool_call>"),
    ("<tool_call>", "the_words", "the_question<|a|>", "the_question<|a|>sure<tool_call>", "q<|a|>", "<tool_call>"),
]


def test_gaps():
    """What stands between a prompt and a forced call, or an answer that a grammar holds, is what the family's template has there."""
    for thought, words, question, call, content, expected in GAPS:
        with tempfile.TemporaryDirectory() as folder:
            env = {"SERVE_PROBE": call or thought, "SERVE_PROBE_THOUGHT": thought, "SERVE_PROBE_WORDS": words, "SERVE_PROBE_QUESTION": question or "x", "SERVE_FED": folder + "/fed"}
            env = {name: text.replace("<tool_call>", "<tool_call>the_name v1") if name != "SERVE_FED" else text for name, text in env.items()}
            with Server("--context", 2000, env=env) as s:
                s.chat(content, tools=TOOLS[1:], tool_choice="required")
                with open(folder + "/fed") as file:
                    fed = file.read().replace("\0", "")
                assert fed.endswith(content + expected + "\n{\"name\": \"g\", \"arguments\": "), (content, expected, fed)
                os.remove(folder + "/fed")
                s.chat(content, response_format={"type": "json_object"})
                behind = "\n\n" if "think" not in words else words[words.index("</") + words[words.index("</"):].index(">") + 1:words.index("the_words")]
                with open(folder + "/fed") as file:
                    fed = file.read().replace("\0", "")
                if content.endswith(("<think>", "<think>\n", "<seed:think>")):
                    assert fed.endswith(">" + behind), (content, fed)
                else:
                    assert fed.endswith(content + (behind if content.endswith("</think>") else "")), (content, fed)


def test_native():
    """llama.cpp's routes."""
    with Server() as s:
        reply = json.loads(s.ask("POST", "/completion", {"prompt": "abc", "n_predict": 2, "cache_prompt": True})[2])
        assert reply["content"] == "ab" and reply["stop"] is True and reply["stop_type"] == "limit" and reply["tokens_predicted"] == 2 and reply["tokens_evaluated"] == 4
        reply = json.loads(s.ask("POST", "/completion", {"prompt": "abc", "grammar": "root ::= \"xyz\"", "seed": -1, "n_predict": -1})[2])
        assert reply["content"] == "xyz" and reply["stop_type"] == "eos"
        assert json.loads(s.ask("POST", "/completion", {"prompt": "abc", "json_schema": {"type": "null"}})[2])["content"] == '{"type":"null"}'
        parts = [json.loads(p[6:]) for p in s.ask("POST", "/completion", {"prompt": "abc", "stream": True})[2].decode().split("\n\n") if p]
        assert "".join(p["content"] for p in parts) == "abc" and [p["stop"] for p in parts] == [False] * (len(parts) - 1) + [True]
        both = json.loads(s.ask("POST", "/completion", {"prompt": ["a", "b"]})[2])
        assert [r["content"] for r in both] == ["a", "b"]
        assert json.loads(s.ask("POST", "/tokenize", {"content": "h\u00e9"})[2]) == {"tokens": [256, 104, 195, 169]}
        assert json.loads(s.ask("POST", "/tokenize", {"content": "hi", "with_pieces": True})[2])["tokens"][1] == {"id": 104, "piece": "h"}
        assert json.loads(s.ask("POST", "/detokenize", {"tokens": [104, 105]})[2]) == {"content": "hi"}
        for path, body in (("/tokenize", {}), ("/tokenize", {"content": 1}), ("/detokenize", {}), ("/detokenize", {"tokens": [1e9]}), ("/detokenize", {"tokens": ["a"]}),
                           ("/completion", {}), ("/completion", {"prompt": "a", "n_predict": -3}), ("/completion", {"prompt": "a", "n_probs": 100})):
            assert s.ask("POST", path, body)[0] == 400, (path, body)
        props = s.get("/props")
        assert props["default_generation_settings"]["n_ctx"] == 4096 and props["total_slots"] == 64 and props["tool_calls"] == "hermes"
        assert s.get("/v1/models/" + s.name)["id"] == s.name and s.ask("GET", "/v1/models/other")[0] == 404
        metrics = s.ask("GET", "/metrics")[2].decode()
        values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
        assert values["serve_running"] == "0" and int(values["serve_generated_tokens_total"]) > 10 and int(values['serve_answers_total{status="400"}']) == 8
        assert values['serve_request_seconds_bucket{le="+Inf"}'] == values["serve_request_seconds_count"] == "5"


def test_responses():
    with Server("--context", 9000) as s:
        def ask(**body):
            status, _, data = s.ask("POST", "/v1/responses", body)
            assert status == 200, data
            return json.loads(data)
        reply = ask(input="hello", metadata={"a": "b"})
        assert reply["object"] == "response" and reply["status"] == "completed" and reply["metadata"] == {"a": "b"} and reply["model"] == s.name
        assert reply["output"] == [{"id": reply["output"][0]["id"], "type": "message", "role": "assistant", "status": "completed",
                                    "content": [{"type": "output_text", "annotations": [], "text": "hello"}]}], reply
        assert reply["usage"] == {"input_tokens": 6, "output_tokens": 5, "total_tokens": 11}
        reply = ask(input="hello", max_output_tokens=2)
        assert reply["status"] == "incomplete" and reply["incomplete_details"] == {"reason": "max_output_tokens"} and reply["output"][0]["content"][0]["text"] == "he"
        flat = [dict(t["function"], type="function") for t in TOOLS]
        talk = [{"role": "user", "content": [{"type": "input_text", "text": "w?"}]}, {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"}, {"type": "function_call_output", "call_id": "a", "output": "rain"},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, {"type": "message", "role": "user", "content": "!variables"}]
        told = json.loads(ask(input=talk, tools=flat, instructions="Be brief.", reasoning={"effort": "low"})["output"][0]["content"][0]["text"])
        assert told["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "w?"}, {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": "a", "function": {"name": "get_weather", "arguments": {}}}, {"type": "function", "id": "b", "function": {"name": "g", "arguments": {}}}]},
            {"role": "tool", "content": "rain", "tool_call_id": "a"}, {"role": "user", "content": "!variables"}], told
        assert told["tools"] == TOOLS and told["reasoning_effort"] == "low"
        text = "<think>hm</think>So: " + CALL + CALL + "."
        whole = ask(input=text, tools=flat)
        assert [o["type"] for o in whole["output"]] == ["reasoning", "message", "function_call", "function_call", "message"], whole
        assert whole["output"][2]["name"] == "get_weather" and json.loads(whole["output"][2]["arguments"]) == {"city": "Bern\n"}
        found = [(p.split("\n")[0][7:], json.loads(p.split("\n")[1][6:])) for p in s.ask("POST", "/v1/responses", {"input": text, "tools": flat, "stream": True})[2].decode().split("\n\n") if p]
        assert all(name == data["type"] for name, data in found) and [data["sequence_number"] for _, data in found] == list(range(len(found)))
        assert found[0][0] == "response.created" and found[-1][0] == "response.completed"
        clean = [{k: v for k, v in o.items() if k not in ("id", "call_id")} for o in whole["output"]]
        assert [{k: v for k, v in o.items() if k not in ("id", "call_id")} for o in found[-1][1]["response"]["output"]] == clean
        done = [data["item"] for name, data in found if name == "response.output_item.done"]
        assert done == found[-1][1]["response"]["output"] and [data["output_index"] for name, data in found if name == "response.output_item.added"] == [0, 1, 2, 3, 4]
        for index, item in enumerate(done):
            deltas = "".join(data["delta"] for name, data in found if name.endswith(".delta") and data["output_index"] == index)
            assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]), (item, deltas)
            assert {data["item_id"] for name, data in found if "item_id" in data and data["output_index"] == index} == {item["id"]}
        forced = ask(input="x", tools=flat, tool_choice={"type": "function", "name": "g"})
        assert [o["type"] for o in forced["output"]] == ["function_call"] and forced["output"][0]["name"] == "g"
        assert forced["tools"] == flat and forced["tool_choice"] == {"type": "function", "name": "g"} and forced["instructions"] is None and forced["metadata"] == {}
        held = ask(input="x", text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "null"}}})
        assert held["output"][0]["content"][0]["text"] == '{"type":"null"}'
        for body in ({}, {"input": 1}, {"input": [1]}, {"input": [{"type": "image"}]}, {"input": [{"type": "function_call"}]}, {"input": []}, {"input": "x", "instructions": 1},
                     {"input": "x", "previous_response_id": "resp_1"}, {"input": "x", "tools": [{"type": "web_search"}]}, {"input": "x", "tools": 1}, {"input": "x", "background": True}, {"input": "x", "include": ["message.output_text.logprobs"]},
                     {"input": [{"type": "function_call_output", "call_id": 1, "output": "x"}]}, {"input": [{"role": "user", "content": "x" * 9000}]}):
            assert s.ask("POST", "/v1/responses", body)[0] == 400, body


def test_vectors():
    with Server() as s:
        for given, found in (("abc", [[3, 97]]), (["abc", "z"], [[3, 97], [1, 122]]), ([97, 98], [[2, 97]]), ([[97], "\u00e9"], [[1, 97], [2, 195]])):
            reply = json.loads(s.ask("POST", "/v1/embeddings", {"input": given, "model": "any"})[2])
            assert [d["embedding"] for d in reply["data"]] == found and [d["index"] for d in reply["data"]] == list(range(len(found))), reply
            reply = json.loads(s.ask("POST", "/v1/embeddings", {"input": given, "encoding_format": "base64"})[2])
            assert [list(struct.unpack("<2f", base64.b64decode(d["embedding"]))) for d in reply["data"]] == found, reply
        assert reply["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
        for body, code in (({}, 400), ({"input": []}, 400), ({"input": [[]]}, 400), ({"input": {"a": 1}}, 400), ({"input": ["a"] * 3000}, 400), ({"input": "a", "encoding_format": "x"}, 400),
                           ({"input": "a", "dimensions": 3}, 400), ({"input": "x" * 5000}, 400), ({"input": [1e9]}, 400), ({"input": "!fail"}, 500)):
            assert s.ask("POST", "/v1/embeddings", body)[0] == code, body
        s.idle()
    with Server(step=10) as s:  # some of many texts at a time: other requests go on beside them, and a client may leave
        texts, replies = ["t%d" % i for i in range(800)], []
        thread = threading.Thread(target=lambda: replies.append(json.loads(s.ask("POST", "/v1/embeddings", {"input": texts})[2])["data"]))
        thread.start()
        s.reach(1)
        assert s.text("abc")["choices"][0]["text"] == "abc" and not replies
        thread.join()
        assert [d["embedding"] for d in replies[0]] == [[len(t), 116] for t in texts]
        with s.connect() as c:
            c.sendall(post({"input": texts * 2}, "/v1/embeddings"))
            s.reach(1)
        s.idle()
        assert "serve_dropped_total 1\n" in s.ask("GET", "/metrics")[2].decode()
    with Server(env={"SERVE_ENCODER": "1"}) as s:
        assert s.ask("POST", "/v1/completions", {"prompt": "a"})[0] == 400 and s.ask("POST", "/v1/embeddings", {"input": "a"})[0] == 200


def test_prefixes():
    """Prompts of a key find what its earlier ones have computed; those of another key do not."""
    with Server("--api-key", "one,two") as s:
        def found(key, prompt):
            status, _, body = s.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, dict(JSON, Authorization="Bearer " + key))
            assert status == 200, body
            return json.loads(body)["usage"].get("prompt_tokens_details", {"cached_tokens": 0})["cached_tokens"]
        assert [found("one", "x" * 100), found("one", "x" * 100), found("one", "x" * 50 + "y"), found("two", "x" * 100), found("two", "x" * 100)] == [0, 96, 48, 0, 96]
        for key in ("", "one,two", "three", "on", ",", "onetwo"):
            assert s.ask("POST", "/v1/completions", {"prompt": "a"}, dict(JSON, Authorization="Bearer " + key))[0] == 401, key
        metrics = s.ask("GET", "/metrics", headers={"Authorization": "Bearer two"})[2].decode()
        assert "serve_found_tokens_total 240\n" in metrics


def test_adapters():
    with Server("--adapters", "loud=/adapters/loud,other=x") as s:
        assert [m["id"] for m in s.get("/v1/models")["data"]] == [s.name, "loud", "other"] and s.get("/v1/models/loud")["id"] == "loud"
        for model, text in (("loud", "ABC"), (s.name, "abc"), ("gpt-4", "abc")):
            reply = s.text("abc", model=model, n=2)
            assert [c["text"] for c in reply["choices"]] == [text] * 2 and reply["model"] == ("loud" if model == "loud" else s.name), reply


def test_other_sites():
    page = "https://page.example"
    preflight = ("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n" % page).encode()
    for options, ok in (((), False), (("--allow-origin", page), True), (("--allow-origin", "http://b.example," + page), True), (("--allow-origin", "*"), True),
                        (("--allow-origin", "http://page.example"), False)):
        with Server(*options) as s:
            reply = s.raw(preflight)
            assert status_of(reply) == (204 if ok else 403) and (b"Access-Control-Allow-Origin: " + page.encode() in reply) == ok, reply
            assert not ok or (b"Allow-Headers: Authorization, Content-Type, *\r\n" in reply and b"Content-Length" not in reply)
            status, headers, _ = s.ask("POST", "/v1/completions", {"prompt": "a", "other": 1}, dict(JSON, Origin=page, **{"X-Stainless-Lang": "js"}))
            assert not ok or "X-Ignored" in headers["Access-Control-Expose-Headers"] and headers["X-Ignored"] == "other"
            assert status == (200 if ok else 403) and headers["Access-Control-Allow-Origin"] == (page if ok else None)


# ---- HTTP

HOST = b"Host: localhost\r\n"
MALFORMED = [
    (b"\0\0\0\0", 400), (b"\x16\x03\x01\x02\x00\x01\x00", 400), (b"GET / HTTP/1.1\nHost: localhost\n\n", 400), (b"GET /\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 400), (b"GET / HTTP/1.1 x\r\n" + HOST + b"\r\n", 400),
    (b"G=T / HTTP/1.1\r\n" + HOST + b"\r\n", 400), (b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET http:///health HTTP/1.1\r\n" + HOST + b"\r\n", 400), (b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n", 403), (b"GET http://" + b"a" * 400 + b"/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET http://evil.example/ HTTP/1.0\r\n\r\n", 403), (b"GET http://localhost/ HTTP/1.1\r\n\r\n", 400), (b"GET ftp://localhost/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET http://localhost@evil/ HTTP/1.1\r\n" + HOST + b"\r\n", 403),
    (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505), (b"GET / HTTP/1.1x\r\n" + HOST + b"\r\n", 505), (b"GET / http/1.1\r\n" + HOST + b"\r\n", 400),
    (b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400), (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + b" folded: 1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n: x\r\n" + HOST + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: \0\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\rc\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 1 1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: \r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n", 413),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403), (b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403),
    (b"GET / HTTP/1.1\r\nHost: localhost:80@evil\r\n\r\n", 403), (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", 403), (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 403),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\n\r\n", 403), (b"GET / HTTP/1.1\r\n" + HOST + b"Origin: null\r\n\r\n", 403),
    (b"GET / HTTP/1.1\r\n" + HOST + b"Expect: miracles\r\n\r\n", 417), (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 101 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 20000 + b"\r\n\r\n", 431), (b"GET /" + b"a" * 40000, 431), (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"\r\n", 411),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}", 415),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/jsonx\r\nContent-Length: 2\r\n\r\n{}", 415),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Encoding: identity, br\r\nContent-Length: 2\r\n\r\n{}", 415),
]
CHUNKED = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json; charset=utf-8\r\nTransfer-Encoding: Chunked\r\n\r\n"
MALFORMED += [(CHUNKED + body, code) for body, code in (
    (b"\r\n", 400), (b"x\r\n", 400), (b"-1\r\n", 400), (b"0x2\r\n{}\r\n0\r\n\r\n", 400), (b"2\r\n{}x\r\n0\r\n\r\n", 400), (b"2\r\n{}\n0\r\n\r\n", 400), (b"2\n{}\r\n", 400),
    (b"fffffffff\r\n", 400), (b"ffffffff\r\n", 413), (b"1;" + b"a" * 3000 + b"\r\n", 400), (b"0\r\n" + b"a: b\r\n" * 4000 + b"\r\n", 431),
    (b"2\0\r\n{}\r\n0\r\n\r\n", 400), (b"100000\r\n" + b" " * 0x100000 + b"\r\n180000\r\n", 413), (b" 2\r\n{}\r\n0\r\n\r\n", 400))]


def test_malformed():
    with Server() as s:
        for data, code in MALFORMED:
            with s.connect() as c:
                try:
                    c.sendall(data)
                except OSError:
                    pass
                status, headers, body, rest = read_response(c)
                assert status == code, (data[:200], status, body)
                assert json.loads(body)["error"]["code"] == code
                if headers["connection"] == "close":
                    assert rest + read_all(c) == b""
        for data in (b"", b"\r\n\r\n\r\n", b"GET", b"GET / HTTP/1.1\r\nHost: localhost\r\n", CHUNKED + b"2\r\n{", post({"prompt": "a"})[:-1]):
            with s.connect() as c:  # the client goes in the middle: nobody is answered
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                assert read_all(c) == b""
        assert s.text("fine")["choices"][0]["text"] == "fine"


def test_connections():
    with Server() as s:
        with s.connect() as c:
            rest = b""
            for i in range(20):  # one after the other
                c.sendall(b"\r\n" * (i % 3) + (post({"prompt": "t%d" % i}) if i % 2 else b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"))
                status, headers, body, rest = read_response(c, rest)
                assert status == 200 and headers["connection"] == "keep-alive" and rest == b""
                assert i % 2 == 0 or json.loads(body)["choices"][0]["text"] == "t%d" % i
            c.sendall(b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n")  # an error does not end it
            assert read_response(c)[0] == 404
            c.sendall(post({"prompt": 1}))
            assert read_response(c)[0] == 400
            c.sendall(post({"prompt": "x"}, more="Connection: a, Close\r\n"))
            status, headers, _, _ = read_response(c)
            assert status == 200 and headers["connection"] == "close" and c.recv(1) == b""
        with s.connect() as c:  # all at once, also behind a stream
            c.sendall(b"".join(post({"prompt": "t%d" % i}) for i in range(30)))
            rest = b""
            for i in range(30):
                status, _, body, rest = read_response(c, rest)
                assert status == 200 and json.loads(body)["choices"][0]["text"] == "t%d" % i
        with s.connect() as c:
            c.sendall(post({"prompt": "abc", "stream": True}) + b"GET /health HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
            reply = read_all(c)
            assert reply.index(b"[DONE]") < reply.index(b"0\r\n\r\nHTTP/1.1 200 OK") and reply.endswith(b"}")
        with s.connect() as c:  # byte by byte
            body = json.dumps({"prompt": "slowly"}).encode()
            chunks = b"".join(b"%x;note=1\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\nTrailer: 1\r\n\r\n"
            for byte in CHUNKED + chunks:
                c.sendall(bytes([byte]))
            status, _, data, rest = read_response(c)
            assert status == 200 and json.loads(data)["choices"][0]["text"] == "slowly" and rest == b""
            c.sendall(CHUNKED + b"%X\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            assert read_response(c)[0] == 200
        with s.connect() as c:
            data = post({"prompt": "wait"}, more="Expect: 100-continue\r\n")
            head, body = data.split(b"\r\n\r\n", 1)
            c.sendall(head + b"\r\n\r\n")
            assert read_response(c)[0] == 100
            c.sendall(body)
            assert read_response(c)[0] == 200
        reply = s.raw(b"GET /health HTTP/1.0\r\n\r\n")
        assert status_of(reply) == 200 and b"Connection: close" in reply
        with s.connect() as c:
            c.sendall(b"GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 3\r\n\r\nabc" * 2)
            status, headers, _, rest = read_response(c)
            assert status == 200 and headers["connection"] == "keep-alive" and read_response(c, rest)[0] == 200


def test_names_and_keys():
    with Server("--allow-host", "box.example", "--api-key", "secret") as s:
        for host, code in (("localhost", 200), ("LOCALHOST:1", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("box.example", 200), ("box.example.", 403), ("boxxexample", 403)):
            assert status_of(s.raw(("GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host).encode())) == code, host
        reply = s.raw(b"GET /health HTTP/1.1\r\nHost: localhost:8\r\nOrigin: http://localhost:8\r\nConnection: close\r\n\r\n")
        assert status_of(reply) == 200
        status, _, body = s.ask("POST", "/v1/completions", {"x" * 5000: 1}, dict(JSON, Authorization="Bearer secret"))
        assert status == 400 and len(body) < 500
        for key, code in (("Bearer secret", 200), ("bearer secret", 200), ("Bearer secreT", 401), ("Bearer secret2", 401), ("Bearer", 401), ("secret", 401), ("", 401)):
            status, headers, _ = s.ask("GET", "/v1/models", headers={"Authorization": key})
            assert status == code and (code == 200 or headers["WWW-Authenticate"] == "Bearer"), key
        assert s.ask("POST", "/v1/completions", {"prompt": "a"})[0] == 401
        assert s.ask("POST", "/v1/completions", {"prompt": "a"}, dict(JSON, Authorization="Bearer secret"))[0] == 200
        assert s.ask("GET", "/")[0] == s.ask("GET", "/health")[0] == 200


def test_targets():
    """The target of a request may be a whole URL, whose host counts instead of Host."""
    with Server() as s:
        for target, code in (("/health", 200), ("http://localhost/health", 200), ("HTTP://LOCALHOST:80/health?x=1", 200), ("https://127.0.0.1/health", 200),
                             ("http://localhost", 200), ("http://localhost?x", 200), ("http://[::1]:8/nothing", 404), ("http://localhost/nothing", 404)):
            for version in ("1.1", "1.0"):
                for host in ("localhost", "evil.example") if "//" in target else ("localhost",):
                    reply = s.raw(("GET %s HTTP/%s\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, version, host)).encode())
                    assert status_of(reply) == code, (target, version, host, reply)
        assert s.ask("POST", "http://localhost/v1/completions", {"prompt": "a"})[0] == 200
        assert s.ask("POST", "/v1/completions", {"prompt": "a"}, dict(JSON, **{"Content-Encoding": "identity"}))[0] == 200


def test_names_from_outside():
    """Where others reach the server, Host is a name that it was given or an address, which no page of another site has; or there is a key."""
    anywhere = ("--host", "0.0.0.0")
    always = [("localhost", 200), ("127.0.0.1:80", 200), ("[::1]", 200), ("", 403), ("localhost.evil.example", 403), ("evil.example:8080@localhost", 403)]
    for options, cases in ((anywhere, [("192.168.1.5:8080", 200), ("[fe80::1]:1", 200), ("box.example", 403), ("evil.example", 403), ("1.2.3.4.evil.example", 403),
                                       ("1.2.3", 403), ("[::1::2]", 403), ("[evil.example]", 403)]),
                           (anywhere + ("--allow-host", "box.example,b"), [("192.168.1.5", 200), ("box.example", 200), ("B:1", 200), ("evil.example", 403)]),
                           (anywhere + ("--api-key", "k"), [("box.example", 200), ("evil.example", 200), ("evil.example:x", 403)]),
                           (("--host", "127.0.0.1"), [("192.168.1.5", 403), ("127.0.0.2", 403), ("evil.example", 403)]),
                           (("--host", "127.0.0.2"), [("127.0.0.2:80", 200), ("127.0.0.3", 403), ("evil.example", 403)])):
        with Server(*options, warns="0.0.0.0" in options and "--api-key" not in options) as s:
            for host, code in cases + always:
                if host == "localhost.evil.example" and "--api-key" in options:
                    code = 200
                for more in ("", "Origin: http://%s\r\n" % host, "Origin: http://other.example\r\n"):
                    expected = 403 if "other" in more else code
                    reply = s.raw(("GET /health HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n" % (host, more)).encode())
                    assert status_of(reply) == expected, (options, host, more, reply)


def test_seeds():
    """Seeds are integers of 64 bits; each of them draws its own text."""
    with Server() as s:
        def drawn(seed):
            status, _, body = s.ask("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 30, "temperature": 1.5, "seed": %s}' % seed)
            return json.loads(body)["choices"][0]["text"] if status == 200 else (status, json.loads(body)["error"]["param"])
        taken = ("0", "1", "-1", "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551614",
                 "-9223372036854775807")
        texts = [drawn(seed) for seed in taken]
        assert all(isinstance(t, str) for t in texts) and len(set(texts)) == len(texts), texts
        assert texts == [drawn(seed) for seed in taken]
        assert isinstance(drawn("null"), str) and drawn("-9223372036854775808") == drawn("9223372036854775808")
        for seed in ("18446744073709551616", "-9223372036854775809", "1e3", "1.5", "1.0", "1e300", '"1"', "true", "[1]"):
            assert drawn(seed) == (400, "seed"), seed


def test_sequences_that_there_is_room_for():
    for room, sequences in ((1000, 64), (64, 64), (63, 32), (16, 16), (9, 8), (1, 8)):
        with Server(env={"SERVE_ROOM": str(room)}, step=5) as s:
            asking = [s.connect() for _ in range(70)]
            for c in asking:
                c.sendall(post({"prompt": "#999abc", "max_tokens": 4000}))
            s.reach(sequences, 70 - sequences)
            for c in asking:
                c.close()
            s.idle()


# ---- limits


def test_times():
    with Server("--request-time", 1, "--idle-time", 2, "--answer-time", 2, step=50) as s:
        start = time.time()
        lazy = [s.connect() for _ in range(4)]
        lazy[1].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        lazy[2].sendall(post({"prompt": "a"})[:-1])
        lazy[3].sendall(CHUNKED + b"5\r\n")

        def drip():  # a byte at a time does not help
            try:
                for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 1000:
                    dripping.sendall(bytes([byte]))
                    time.sleep(0.05)
            except OSError:
                pass

        dripping = s.connect()
        thread = threading.Thread(target=drip)
        thread.start()
        assert status_of(read_all(dripping)) == 408 and 0.8 < time.time() - start < 20
        assert [status_of(read_all(c)) for c in lazy[1:]] == [408] * 3
        assert read_all(lazy[0]) == b"" and 1.5 < time.time() - start < 20  # idle: closed without a word
        thread.join()
        for c in lazy + [dripping]:
            c.close()
        status, headers, body = s.ask("POST", "/v1/completions", {"prompt": "#999abc", "max_tokens": 1000})
        assert status == 503 and "Retry-After" in headers and "longer" in json.loads(body)["error"]["message"]
        body = s.ask("POST", "/v1/completions", {"prompt": "#999abc", "max_tokens": 1000, "stream": True})[2]
        last = body.decode().split("\n\n")[-2]
        assert body.count(b"data: ") > 10 and json.loads(last[len("data: "):])["error"]["code"] == 503
        s.idle()


def test_stalled_reader():
    with Server("--request-time", 1, "--context", 200000) as s:
        before = s.descriptors()
        with s.connect() as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(post({"messages": [{"role": "user", "content": "#99999abcdefgh"}], "max_tokens": 150000, "stream": True, "logprobs": True},
                           "/v1/chat/completions"))  # 9 MB: more than the system's buffers take
            time.sleep(0.3)
            assert s.descriptors() == before + 1
            end = time.time() + 10
            while s.descriptors() > before and time.time() < end:
                time.sleep(0.1)
            assert s.descriptors() == before
            s.idle()


def test_queue_and_connections():
    with Server("--sequences", 2, "--queue", 1, "--connections", 6, step=20) as s:
        long = [s.connect() for _ in range(3)]
        for i, c in enumerate(long):
            c.sendall(post({"prompt": "#999abc", "max_tokens": 4000, "stream": True}))
            s.reach(min(i + 1, 2), i // 2)
        status, headers, body = s.ask("POST", "/v1/completions", {"prompt": "a"})
        assert status == 429 and headers["Retry-After"] and json.loads(body)["error"]["type"] == "rate_limit_error"
        long[2].close()  # one that waits leaves its place to another one
        s.reach(2, 0)
        long[2] = s.connect()
        long[2].sendall(post({"prompt": "#999abc", "max_tokens": 4000, "stream": True}))
        s.reach(2, 1)
        more = [s.connect() for _ in range(3)]
        status, headers, _ = s.ask("GET", "/health")
        assert status == 503 and headers["Retry-After"]
        for c in more:
            c.close()
        long[0].close()  # it leaves, and the next one is taken up
        s.reach(2, 0)
        assert long[2].recv(1, socket.MSG_PEEK)
        long[2].shutdown(socket.SHUT_WR)  # one half of the connection is as good as all of it
        assert status_of(read_all(long[2])) == 200
        long[1].close()
        s.idle()
        many = [s.connect() for _ in range(40)]  # more than there are places: the rest waits in the system
        time.sleep(0.2)
        for c in many:
            c.close()
        s.idle()


def test_connections_of_an_address():
    with Server("--connections", 6, "--client-connections", 3) as s:
        mine = [s.connect() for _ in range(3)]
        for c in mine:
            c.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            assert read_response(c)[0] == 200
        for _ in range(20):  # they take nobody's place
            with s.connect() as c:
                status, headers, body, rest = read_response(c)
                assert status == 503 and headers["connection"] == "close" and "address" in json.loads(body)["error"]["message"] and not rest
        with socket.create_connection(("127.0.0.1", s.port), 30, ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            assert read_response(other)[0] == 200
        mine.pop().close()
        end = time.time() + 20
        while (status := s.ask("GET", "/health")[0]) != 200 and time.time() < end:
            time.sleep(0.02)
        assert status == 200
        for c in mine:
            c.close()
    with Server("--connections", 6) as s:  # this machine's own share all
        mine = [s.connect() for _ in range(6)]
        for c in mine:
            c.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            assert read_response(c)[0] == 200
        for c in mine:
            c.close()


def test_leaving():
    with Server("--sequences", 4, step=20) as s:
        before = s.descriptors()
        for stream in (False, True):
            c = s.connect()
            c.sendall(post({"prompt": "#999abc", "max_tokens": 4000, "stream": stream}))
            s.reach(1)
            c.close()
            s.idle()
        # a client that is killed
        code = "import socket,sys\nc=socket.create_connection(('127.0.0.1',%d))\nc.sendall(%r)\nwhile 1: c.recv(10)" % (
            s.port, post({"prompt": "#999abc", "max_tokens": 4000, "stream": True}))
        for _ in range(3):
            child = subprocess.Popen([sys.executable, "-c", code])
            s.reach(1)
            child.kill()
            child.wait()
            s.idle()
        end = time.time() + 10
        while s.descriptors() > before and time.time() < end:
            time.sleep(0.02)
        assert s.descriptors() <= before


def test_side_by_side():
    """The same texts alone and beside others, of which some fail."""
    with Server("--sequences", 4, "--queue", 100, step=1) as s:
        results = {}

        def one(i):
            if i % 5 == 0:
                results[i] = s.ask("POST", "/v1/completions", {"prompt": "!fail"})[0]
            else:
                results[i] = s.text("#3text %d" % i, max_tokens=100)["choices"][0]["text"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == {i: 500 if i % 5 == 0 else ("text %d" % i) * 3 for i in range(40)}, results
        s.idle()


def test_end():
    with Server("--grace-time", 5, step=10) as s:  # what runs is finished
        c, quiet = s.connect(), s.connect()
        c.sendall(post({"prompt": "#30abc", "max_tokens": 100}))
        s.reach(1)
        s.process.send_signal(signal.SIGTERM)
        status, headers, body, _ = read_response(c)
        assert status == 200 and headers["connection"] == "close" and json.loads(body)["choices"][0]["text"] == "abc" * 30
        assert quiet.recv(1) == b""
        c.close()
        quiet.close()
        s.process.wait(10)
    for signals, grace in ((1, 1), (2, 60)):  # or cut: after the time, or by the second signal
        with Server("--grace-time", grace, "--sequences", 1, step=10) as s:
            all_of = [s.connect() for _ in range(3)]
            for i, (c, stream) in enumerate(zip(all_of, (True, False, False))):
                c.sendall(post({"prompt": "#999abc", "max_tokens": 4000, "stream": stream}))
                s.reach(1, i)
            all_of[0].recv(1, socket.MSG_PEEK)  # it has begun
            start = time.time()
            for _ in range(signals):
                s.process.send_signal(signal.SIGINT)
                time.sleep(0.2)
            replies = [read_all(c) for c in all_of]
            for c in all_of:
                c.close()
            assert [status_of(reply) for reply in replies] == [200, 503, 503] and b"shutting down" in replies[0]
            s.process.wait(10)
            assert time.time() - start < 30


def test_command_line():
    for options, code in (([], 2), (["--help"], 0), (["m", "--port"], 1), (["m", "--port", "x"], 1), (["m", "--nothing", "1"], 1), (["m", "n"], 1),
                          (["m", "--host", "256.256.256.256"], 1), (["m", "--queue", "-1"], 1), (["m", "--adapters", "x"], 1),
                          (["m", "--adapters", "a=none"], 1), (["m", "--calls", "nothing"], 1),
                          (["m", "--cache", "f16"], 1)):
        done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=30)
        assert done.returncode == code and (done.stdout + done.stderr), (options, done)
    for name, value, says in (("--port", "x", "expected a number from 0 to 65535"), ("--queue", "-1", "expected a number from 0"), ("--context", "1e3", "expected a number from 1"),
                              ("--cache", "f16", "expected numbers, f8"), ("--calls", "nothing", "expected a form"), ("--adapters", "x", "expected name=folder")):
        done = subprocess.run([PROGRAM, "m", name, value], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "serve: %s is %s; %s" % (name, value, says) in done.stderr, (name, value, done)


# ---- damage and time


def damaged(chance):
    """A request that was right once."""
    body = {"prompt": "#2ab\u00e9", "max_tokens": chance.choice([1, 5, 20]), "stop": ["b", "cd"], "seed": 3, "stream": chance.random() < 0.3,
            "logit_bias": {"1": -1}, "temperature": 0.5}
    path = "/v1/completions"
    if chance.random() < 0.5:
        body["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a\u20ac"}, {"type": "text", "text": "b"}]}]
        del body["prompt"]
        path = "/v1/chat/completions"
    data = json.dumps(body, ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.5:
        pieces = b""
        at = 0
        while at < len(data):
            size = chance.randint(1, 40)
            piece = data[at:at + size]
            pieces += b"%x\r\n%s\r\n" % (len(piece), piece)
            at += size
        request = CHUNKED.replace(b"/v1/completions", path.encode()) + pieces + b"0\r\n\r\n"
    else:
        request = post(data, path)
    request = bytearray(request)
    for _ in range(chance.choice([0, 1, 1, 2, 5, 20])):
        at = chance.randrange(len(request)) if request else 0
        kind = chance.randrange(6)
        if kind == 0 and request:
            request[at] = chance.randrange(256)
        elif kind == 1 and request:
            request[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del request[at:at + chance.choice([1, 2, 10, 100])]
        elif kind == 3:
            request[at:at] = bytes(chance.choice(b"\r\n\0\"\\{}[]:, 0x") for _ in range(chance.choice([1, 3, 50])))
        elif kind == 4:
            request[at:at] = request[at:at + chance.choice([1, 10, 100])]
        else:
            request[at:at] = chance.choice([b"\r\n\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\\ud800", b"\xf0\x9f", b"1e400", b"[[[["])
    return bytes(request)


def test_damaged():
    chance = random.Random(7)
    codes = {}
    with Server("--request-time", 30, "--connections", 200) as s:
        for i in range(20000 if SOAK else 3000):
            with s.connect() as c:
                data = damaged(chance)
                try:
                    at = chance.randrange(len(data) + 1) if chance.random() < 0.2 else len(data)
                    c.sendall(data[:at])
                    c.sendall(data[at:])
                    c.settimeout(0.02)
                    reply = c.recv(4096)
                except OSError:
                    reply = b""
                if reply:
                    code = status_of(reply)
                    assert code in (200, 400, 403, 404, 405, 408, 411, 413, 415, 417, 431, 501, 505), (data, reply)
                    codes[code] = codes.get(code, 0) + 1
        s.idle()
        assert s.text("fine")["choices"][0]["text"] == "fine"
    assert codes.get(200, 0) > 50 and codes.get(400, 0) > 300, codes
    print("     answers to damaged requests:", dict(sorted(codes.items())))


def test_nothing_is_left():
    count = 24000 if SOAK else 2000
    asan = "quarantine_size_mb=1:" + os.environ.get("ASAN_OPTIONS", "")  # else it keeps 256 MiB of what was freed
    with Server("--connections", 200, "--sequences", 8, env={"ASAN_OPTIONS": asan}) as s:
        def some(n):
            for i in range(n):
                c = s.connect()
                c.sendall(post({"prompt": "abc%d" % i, "stream": i % 2 == 0}, more="Connection: close\r\n"))
                if i % 7 == 0:
                    c.close()
                    continue
                reply = read_all(c)
                assert status_of(reply) == 200, reply
                c.close()
        some(count // 4)
        s.idle()
        fds, memory = s.descriptors(), s.resident()
        threads = [threading.Thread(target=some, args=(count // 4,)) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        s.idle()
        time.sleep(0.2)
        assert s.descriptors() <= fds, (fds, s.descriptors())
        grown = s.resident() - memory
        assert grown < 8192 + count // 4, "%d KiB more" % grown  # AddressSanitizer keeps a quarter of one for each thread that was
        print("     %d requests: %d descriptors, %+d KiB" % (count, s.descriptors(), grown))


def make_model(folder, controls=()):
    """A Llama with random weights, and a tokenizer of single bytes and control tokens; the model's vocabulary is filled up, as those of many models are."""
    if os.path.exists(folder + "/config.json"):
        return
    os.makedirs(folder, exist_ok=True)
    vocab, hidden, inner, heads, kv, dim = 320, 32, 48, 4, 2, 8
    config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 2,
              "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "float32", "eos_token_id": 256}
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(2):
        at = "model.layers.%d." % i
        shapes.update({at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
                       at + "self_attn.q_proj.weight": (heads * dim, hidden), at + "self_attn.k_proj.weight": (kv * dim, hidden),
                       at + "self_attn.v_proj.weight": (kv * dim, hidden), at + "self_attn.o_proj.weight": (hidden, heads * dim),
                       at + "mlp.gate_proj.weight": (inner, hidden), at + "mlp.up_proj.weight": (inner, hidden), at + "mlp.down_proj.weight": (hidden, inner)})
    chance, header, data = random.Random(1), {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [chance.gauss(0, 0.4) if len(shape) > 1 else 1.0 for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack("<%df" % count, *values)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that stand for themselves
    letters = {byte: chr(byte) for byte in own}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in own)})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, name in enumerate(("<end>", *controls))]
    tokenizer = {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False, "vocab": dict({letters[b]: b for b in range(256)}, **{t["content"]: t["id"] for t in special}), "merges": []}}
    template = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}"
                "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<end>{% endfor %}"
                "{% if add_generation_prompt %}H{% endif %}")
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", {"eos_token": "<end>", "chat_template": template})):
        with open("%s/%s.json" % (folder, name), "w") as file:
            json.dump(content, file)


def test_model():
    """With any model: what does not depend on what it says."""
    tiny = not os.path.exists(MODEL + "/config.json") or os.path.getsize(MODEL + "/model.safetensors") < 1000000
    make_model(MODEL)
    with Server("--sequences", 4, "--context", 320) as s:
        assert s.get("/v1/models")["data"][0]["max_model_len"] == 320
        for more in ({"temperature": 0}, {"seed": 5}, {"seed": 5, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1}):
            ask = dict(more, prompt="the ", max_tokens=12)
            alone = s.text(**ask)
            assert 0 <= alone["usage"]["completion_tokens"] <= 12 and alone["usage"]["prompt_tokens"] >= 1
            results = []
            threads = [threading.Thread(target=lambda: results.append(s.text(**ask)["choices"][0]["text"])) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert results == [alone["choices"][0]["text"]] * 6, (results, alone)
            streamed = joined(events(s.ask("POST", "/v1/completions", dict(ask, stream=True))[2]))
            assert streamed == (alone["choices"][0]["text"], alone["choices"][0]["finish_reason"])
        log = s.text("the ", max_tokens=3, logprobs=0, temperature=0)["choices"][0]["logprobs"]
        assert len(log["tokens"]) == len(log["token_logprobs"]) and all(-100 < p <= 0 for p in log["token_logprobs"])
        if tiny:  # up to the end of the context
            full = s.text("x" * 300, max_tokens=1000, logit_bias={"256": -100}, seed=1)
            assert full["usage"] == {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320}
            assert full["choices"][0]["finish_reason"] == "length"
            full = s.text("x" * 319, max_tokens=1000, temperature=0)
            assert full["usage"]["total_tokens"] <= 320 and s.ask("POST", "/v1/completions", {"prompt": "x" * 320})[0] == 400
            assert s.text("x<end>y", max_tokens=1)["usage"]["prompt_tokens"] == 3
        if tiny:
            schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["x", "yz"]}, "maxItems": 2}},
                      "required": ["b"]}
            for seed in range(3):
                status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "seed": seed,
                                        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
                said = json.loads(body)["choices"][0]
                value = json.loads(said["message"]["content"])
                assert status == 200 and said["finish_reason"] == "stop" and len(value["b"]) <= 2 and set(value["b"]) <= {"x", "yz"}, body
                assert set(value) <= {"a", "b"} and isinstance(value.get("a", 0), int), body
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                    "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})
            assert status == 400 and "the keyword 'not'" in json.loads(body)["error"]["message"], body
        if tiny:
            alone = [s.text("ab", seed=seed, max_tokens=8)["choices"][0]["text"] for seed in (3, 4, 5)]
            assert [c["text"] for c in s.text(["ab", "cd"], seed=3, max_tokens=8, n=3)["choices"]][:3] == alone
            log = s.chat("ab", max_tokens=5, logprobs=True, top_logprobs=20, temperature=0)["choices"][0]["logprobs"]["content"]
            for token in log:
                top = [t["logprob"] for t in token["top_logprobs"]]
                assert len(top) == 20 and top == sorted(top, reverse=True) and abs(top[0] - token["logprob"]) < 1e-4, log  # the likeliest one was taken
            said = s.text("ab", max_tokens=5, echo=True, logprobs=2, temperature=0)["choices"][0]
            ids = json.loads(s.ask("POST", "/tokenize", {"content": "ab"})[2])["tokens"]
            assert said["logprobs"]["token_logprobs"][0] is None and said["logprobs"]["tokens"][:2] == ["a", "b"] and len(said["logprobs"]["tokens"]) == 7
            # a token has the same probability beside others and as one of a prompt, up to the rounding of other products
            again = s.text(ids + [ord(c) for c in "xyz"], max_tokens=0, echo=True, logprobs=3)["choices"][0]["logprobs"]
            assert len(again["tokens"]) == 5 and all(p <= 0 for p in again["token_logprobs"][1:]) and len(again["top_logprobs"][4]) >= 1
            first = s.text(ids, max_tokens=1, logprobs=20)["choices"][0]["logprobs"]["top_logprobs"][0]
            if "x" in first:
                assert abs(first["x"] - again["token_logprobs"][2]) < 1e-4
            top = max(first, key=first.get)
            if len(top) == 1 and ord(top) < 128:
                prompt = s.text(ids + [ord(top)], max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
                assert abs(prompt["token_logprobs"][2] - first[top]) < 1e-4, (prompt, first)
            plain = s.text("ab", max_tokens=40, seed=2, temperature=0)["choices"][0]["text"]
            assert s.text("ab", max_tokens=40, seed=2, temperature=0, frequency_penalty=2, presence_penalty=2)["choices"][0]["text"] != plain
            tools = [{"type": "function", "function": {"name": "f", "parameters": {"enum": [{"c": "x"}, {"c": "yy"}]}}},
                     {"type": "function", "function": {"name": "g"}}]
            names = set()
            for choice in ("required", {"type": "function", "function": {"name": "f"}}):
                for bias in ({}, {"103": 100}):  # of the letter g
                    said = s.chat("a", tools=tools, tool_choice=choice, seed=1, logit_bias=bias)["choices"][0]
                    call = said["message"]["tool_calls"][0]["function"]
                    names.add(call["name"])
                    value = json.loads(call["arguments"])
                    assert said["finish_reason"] == "tool_calls" and (value["c"] in ("x", "yy") if call["name"] == "f" else value == {}), said
            assert "g" in names and names <= {"f", "g"}, names
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 150}], "tools": tools, "tool_choice": "required"})
            assert status == 400 and "context" in json.loads(body)["error"]["message"], body
            again = [s.text("a talk with a long beginning " * 6, max_tokens=6, seed=4) for _ in range(2)]
            assert again[1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64 and again[0]["choices"] == again[1]["choices"], again
            vectors = json.loads(s.ask("POST", "/v1/embeddings", {"input": ["ab", "cd"]})[2])["data"]
            assert len(vectors) == 2 and abs(sum(x * x for x in vectors[0]["embedding"]) - 1) < 1e-3
            assert s.get("/props")["tool_calls"] == "hermes" and s.get("/props")["template_has_tools"] is True
            talk = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "y"}]
            status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": talk, "max_tokens": 1})
            assert json.loads(body)["usage"]["prompt_tokens"] == len('[user]x<[assistant]<tool_call>{"name": "g", "arguments": {}}</tool_call><[tool]y<H'), body
        status, _, body = s.ask("POST", "/v1/completions", {"prompt": "x y " * 300})
        assert status == 400 and "context" in json.loads(body)["error"]["message"]
        status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello<end>"}], "max_tokens": 5})
        assert status == 200 or "template" in json.loads(body)["error"]["message"], body
        if status == 200 and tiny:  # what a message says is no control token
            assert json.loads(body)["usage"]["prompt_tokens"] == len("[user]hello<end>") + 1 + len("H"), body
            assert s.text("abc", max_tokens=30, logit_bias={"256": 100})["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}
            status, _, body = s.ask("POST", "/v1/completions", {"prompt": [1, 257], "max_tokens": 2})
            assert status == 400, body
            # One of five tokens that are drawn here is none of the tokenizer's: it is no text, and the answer goes on.
            drawn = s.text("abc", max_tokens=60, temperature=1, seed=3, logprobs=0, logit_bias={"256": -100})
            assert drawn["usage"]["completion_tokens"] == 60 and drawn["choices"][0]["finish_reason"] == "length", drawn
            tokens = drawn["choices"][0]["logprobs"]["tokens"]
            assert len(tokens) == 60 and 1 <= tokens.count("") <= 30, tokens
        c = s.connect()
        c.sendall(post({"prompt": "a", "max_tokens": 100}))
        time.sleep(0.2)
        c.close()
        s.idle(30)


def test_model_forced_pairs():
    """A model that says anything is held to calls of its form, whose arguments are valid."""
    make_model(MODEL)
    if os.path.getsize(MODEL + "/model.safetensors") > 1000000:
        return
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties, "required": required}}} for name, properties, required in (
        ("f", {"s": {"type": "string", "minLength": 2, "maxLength": 5}, "n": {"type": "integer", "minimum": -9, "maximum": 99}, "o": {"type": "boolean"}}, ["s", "n"]),
        ("g", {"e": {"enum": ["<a>\n", "\"b\""]}, "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]}, "maxItems": 2}}, ["e", "l"]))]
    quiet = {"9": -90, "10": -90, "13": -90, "32": -90, "60": 3, "34": 3}  # no white space, but where it has to be; more of < and "
    controls = ["<function=", "<parameter=", "</parameter>", "</function>", "</tool_call>", "<tool_call>"]
    make_model(MODEL + "_controls", controls)
    for folder, cases in ((MODEL, [(tool, forced) for tool in tools for forced in (False, True)]), (MODEL + "_controls", [(tools[0], False)])):
        with Server("--sequences", 2, "--context", 512, "--calls", "coder", model=folder) as s:
            for tool, forced in cases:  # a function is forced, in a stream, or any
                choice = {"type": "function", "function": {"name": tool["function"]["name"]}} if forced else "required"
                status, _, body = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [tool], "tool_choice": choice, "stream": forced,
                                        "seed": 3, "logit_bias": quiet, "parallel_tool_calls": False, "logprobs": not forced})
                assert status == 200, body
                choice = None if forced else json.loads(body)["choices"][0]
                message, why = merged(events(body)) if forced else (choice["message"], choice["finish_reason"])
                assert why == "tool_calls" and len(message["tool_calls"]) == 1 and not message["content"], (why, message)
                value = json.loads(message["tool_calls"][0]["function"]["arguments"])
                if tool == tools[0]:
                    assert set(value) in ({"s", "n"}, {"s", "n", "o"}) and 2 <= len(value["s"]) <= 5 and type(value["n"]) is int and -9 <= value["n"] <= 99, value
                    assert type(value.get("o", True)) is bool, value
                else:
                    assert set(value) == {"e", "l"} and value["e"] in ("<a>\n", "\"b\"") and len(value["l"]) <= 2 and all(x == {"x": None} for x in value["l"]), value
                if not forced:  # markers that are control tokens are these, and are spelled out otherwise
                    said = [t["token"] for t in choice["logprobs"]["content"]]
                    names = [t for t in said if len(t) > 1]
                    assert len(said) > 20 and names == ([] if folder == MODEL else ["<parameter=", "</parameter>"] * len(value) + ["</function>", "</tool_call>"]), said


def test_model_memory():
    """The memory of a server with many connections does not depend on the number of processors: malloc has arenas for 16 of them here. Each request
    makes a grammar of some 400 KB in the thread of its connection."""
    make_model(MODEL)
    tunables = ":".join(t for t in (os.environ.get("GLIBC_TUNABLES"), "glibc.malloc.arena_max=128") if t)
    with Server("--sequences", 2, "--context", 320, "--connections", 200, env={"GLIBC_TUNABLES": tunables}) as s:
        body = post({"messages": [{"role": "user", "content": "x" * 400}], "tools": TOOLS, "tool_choice": "required"}, "/v1/chat/completions", "Connection: close\r\n")
        wrong, before = [], s.resident()

        def one(start):
            with s.connect() as c:
                start.wait()
                c.sendall(body)
                reply = read_all(c)
                if status_of(reply) != 400 or b"context" not in reply:  # the prompt is too long: it is refused behind its grammar
                    wrong.append(reply)

        for _ in range(2):
            start = threading.Barrier(128)
            threads = [threading.Thread(target=one, args=(start,)) for _ in range(128)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        assert not wrong, wrong[0]
        grown = s.resident() - before
        assert grown < 12288, "%d KiB more" % grown
        print("     128 connections at once: %+d KiB" % grown)


def test_model_is_warm():
    """What is compiled is compiled before the server listens: a cache of kernels that is emptied then stays empty."""
    if not os.environ.get("IGNIS_CACHE_DIR"):
        print("skip: serve: warm: IGNIS_CACHE_DIR does not say where kernels are kept")
        return
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.environ["IGNIS_CACHE_DIR"], folder, dirs_exist_ok=True)
        options = () if SOAK else ("--sequences", 4, "--context", 320)
        with Server(*options, env={"IGNIS_CACHE_DIR": folder}) as s:
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
            for length in (*range(1, 20), *range(20, 300, 1 if SOAK else 37)):
                s.text([length % 7 + 1] * length, max_tokens=2, temperature=length % 2, top_p=0.9 if length % 3 else 1)
            for many in (2, 3, 4, 64) if SOAK else (2, 3, 4):
                threads = [threading.Thread(target=lambda: s.text("a b", max_tokens=5 if not SOAK else 40, temperature=many % 2)) for _ in range(many)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            assert os.listdir(folder) == [], os.listdir(folder)


def main():
    names = [name for name in globals() if name.startswith("test_")]
    names = [name for name in names if name.startswith("test_model") == bool(MODEL)]
    only = os.environ.get("ONLY")
    for name in names:
        if only and only not in name:
            continue
        start = time.time()
        globals()[name]()
        print("ok   serve: %s, %.1f s" % (name[5:].replace("_", " "), time.time() - start))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
