# SPDX-License-Identifier: MIT
"""The server as the client libraries of others see it: clients_test.py SERVER

SERVER is built with the model of ignis_models.h, which repeats its prompt. Tried are those of openai, langchain-openai, litellm and lm-eval that this
Python has; each says whether it ran. `make check-clients PYTHON=/path/to/python`."""
import asyncio
import importlib.util
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_test as st  # noqa: E402

WEATHER = st.TOOLS[:1]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>'


def with_openai(s):
    import openai
    client = openai.OpenAI(base_url="http://%s/v1" % s.host, api_key="k")
    assert [m.id for m in client.models.list()] == [s.name] and client.models.retrieve(s.name).id == s.name
    said = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hello"}], n=2, logprobs=True, top_logprobs=3)
    assert [c.message.content for c in said.choices] == ["hello"] * 2 and len(said.choices[0].logprobs.content[0].top_logprobs) == 3
    assert said.usage.completion_tokens == 10
    chunks = list(client.chat.completions.create(model="x", messages=[{"role": "user", "content": "hello"}], stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hello" and chunks[-1].usage.total_tokens == 11
    said = client.chat.completions.create(model="x", messages=[{"role": "user", "content": CALL}], tools=WEATHER)
    call = said.choices[0].message.tool_calls[0]
    assert said.choices[0].finish_reason == "tool_calls" and call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Bern"}
    talk = [{"role": "user", "content": "w?"}, said.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}, {"role": "user", "content": "So?"}]
    assert client.chat.completions.create(model="x", messages=talk, tools=WEATHER).choices[0].message.content == "So?"
    with client.chat.completions.stream(model="x", messages=[{"role": "user", "content": CALL}], tools=WEATHER) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "get_weather"
    said = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "a"}], tools=WEATHER, tool_choice="required")
    assert said.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert [c.text for c in client.completions.create(model="x", prompt=["ab", "cd"], max_tokens=5).choices] == ["ab", "cd"]
    assert [d.embedding for d in client.embeddings.create(model="x", input=["abc", "z"]).data] == [[3, 97], [1, 122]]
    reply = client.responses.create(model="x", input="hello")
    assert reply.output_text == "hello" and reply.status == "completed"
    reply = client.responses.create(model="x", input=CALL, tools=[dict(WEATHER[0]["function"], type="function", strict=False)])
    assert reply.output[0].type == "function_call" and json.loads(reply.output[0].arguments) == {"city": "Bern"}
    with client.responses.stream(model="x", input="hello") as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == "hello" and "".join(e.delta for e in events if e.type == "response.output_text.delta") == "hello"
    for call, kind in ((lambda: client.completions.create(model="x", prompt="a", temperature=9), openai.BadRequestError), (lambda: client.models.retrieve("none"), openai.NotFoundError)):
        try:
            call()
        except kind:
            continue
        raise AssertionError(kind)

    async def many():
        async with openai.AsyncOpenAI(base_url="http://%s/v1" % s.host, api_key="k") as other:
            return await asyncio.gather(*(other.completions.create(model="x", prompt="t%d" % i) for i in range(20)))
    assert [r.choices[0].text for r in asyncio.run(many())] == ["t%d" % i for i in range(20)]


def with_langchain_openai(s):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    model = ChatOpenAI(base_url="http://%s/v1" % s.host, api_key="k", model="any")
    assert model.invoke("hello").content == "hello" and "".join(c.content for c in model.stream("hello")) == "hello"
    bound = model.bind_tools(WEATHER)
    said = bound.invoke(CALL)
    assert said.tool_calls[0]["name"] == "get_weather" and said.tool_calls[0]["args"] == {"city": "Bern"}
    talk = [HumanMessage("w?"), AIMessage("", tool_calls=said.tool_calls), ToolMessage("rain", tool_call_id=said.tool_calls[0]["id"]), HumanMessage("So?")]
    assert bound.invoke(talk).content == "So?"
    pieces = None
    for chunk in bound.stream(CALL):
        pieces = chunk if pieces is None else pieces + chunk
    assert pieces.tool_calls[0]["args"] == {"city": "Bern"}
    forced = model.bind_tools(WEATHER, tool_choice="get_weather").invoke("a")
    assert forced.tool_calls[0]["name"] == "get_weather"
    assert [r.content for r in model.batch(["a", "b", "c"])] == ["a", "b", "c"]
    vectors = OpenAIEmbeddings(base_url="http://%s/v1" % s.host, api_key="k", model="any", check_embedding_ctx_length=False)
    assert vectors.embed_documents(["abc", "z"]) == [[3, 97], [1, 122]]


def with_litellm(s):
    import litellm
    base = dict(model="openai/any", api_base="http://%s/v1" % s.host, api_key="k")
    assert litellm.completion(messages=[{"role": "user", "content": "hello"}], **base).choices[0].message.content == "hello"
    said = litellm.completion(messages=[{"role": "user", "content": CALL}], tools=WEATHER, **base)
    assert said.choices[0].message.tool_calls[0].function.name == "get_weather"
    chunks = litellm.completion(messages=[{"role": "user", "content": "<think>hm</think>hello"}], stream=True, **base)
    found = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(d.content or "" for d in found) == "hello" and "".join(getattr(d, "reasoning_content", None) or "" for d in found) == "hm"
    assert [d["embedding"] for d in litellm.embedding(input=["abc"], **base).data] == [[3, 97]]


def with_lm_eval(s):
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    model = LocalCompletionsAPI(base_url="http://%s/v1/completions" % s.host, model="any", tokenizer_backend=None, tokenized_requests=False, batch_size=1, num_concurrent=1)
    model._tokenizer_backend = None

    class Bytes:  # the model's own tokens, which are bytes
        eos_token, eos_token_id, eot_token_id = "<end>", 257, 257

        def __call__(self, text, **more):
            return type("Encoding", (), {"input_ids": list(text.encode()) if isinstance(text, str) else [list(t.encode()) for t in text]})()

        def encode(self, text, **more):
            return list(text.encode())

        def decode(self, ids, **more):
            return bytes(i for i in ids if i < 256).decode()

        def batch_decode(self, all_ids, **more):
            return [self.decode(ids) for ids in all_ids]

    model.tokenizer, model.tokenizer_backend, model.tokenized_requests = Bytes(), "huggingface", True
    asked = [Instance(request_type="loglikelihood", doc={}, arguments=("ab", "cde"), idx=0), Instance(request_type="loglikelihood", doc={}, arguments=("q", "aa"), idx=1)]
    found = model.loglikelihood(asked, disable_tqdm=True)
    assert [round(f[0], 4) for f in found] == [-0.75, -0.5] and all(f[1] for f in found), found  # all tokens of the fake are equally likely
    text = model.generate_until([Instance(request_type="generate_until", doc={}, arguments=("#9ab", {"until": ["bab"], "max_gen_toks": 9}), idx=0)], disable_tqdm=True)
    assert text == ["a"], text


def main():
    for name, what in (("openai", with_openai), ("langchain_openai", with_langchain_openai), ("litellm", with_litellm), ("lm_eval", with_lm_eval)):
        if importlib.util.find_spec(name) is None:
            print("skip: serve: this Python has no %s" % name)
            continue
        with st.Server() as s:
            what(s)
        import importlib.metadata as metadata
        print("ok   serve: %s %s" % (name, metadata.version(name.replace("_", "-"))))


main()
