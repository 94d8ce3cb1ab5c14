"""Bots for tests: a real AG-UI server (pydantic-ai) whose models follow a script.

Start it with `python -m uvicorn peer:app` in this directory. It needs no network and no key.
"""

import asyncio
import json

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def results(messages):
    """What every call so far was answered, as JSON where it is JSON."""

    def read(content):
        try:
            return json.loads(content)
        except (TypeError, ValueError):
            return content

    requests = (m for m in messages if isinstance(m, ModelRequest))
    return [read(p.content) for m in requests for p in m.parts if isinstance(p, ToolReturnPart)]


def call(index, tool, arguments, call_id):
    """One call, its arguments in two pieces as models send them."""
    text = json.dumps(arguments)
    half = len(text) // 2
    yield {index: DeltaToolCall(name=tool, json_args=text[:half], tool_call_id=call_id)}
    yield {index: DeltaToolCall(json_args=text[half:], tool_call_id=call_id)}


async def chat(messages, info):
    """Says something and is done."""
    for word in ["Three ", "pull ", "requests ", "wait."]:
        yield word


async def think(messages, info):
    """Thinks, then says something."""
    yield {0: DeltaThinkingPart(content="I should be brief.")}
    yield "Brief."


async def notes(messages, info):
    """Writes notes.txt, reads it and says what it read, with the tools it was offered."""
    got = results(messages)
    offered = {tool.name for tool in info.function_tools}
    if not {"computer_write_file", "computer_read_file"} <= offered:
        yield "I was not offered the files tools."
    elif not got:
        yield "I take a note. "
        for delta in call(1, "computer_write_file", {"path": "notes.txt", "contents": "tea at four"}, "call_write"):
            yield delta
    elif len(got) == 1:
        for delta in call(0, "computer_read_file", {"path": "notes.txt"}, "call_read"):
            yield delta
    else:
        yield f"It says: {got[1]['text'] if isinstance(got[1], dict) else got[1]}"


async def parallel(messages, info):
    """Makes two calls at once, then says what came back."""
    got = results(messages)
    if got:
        yield "Both are answered: " + json.dumps(got)
        return
    yield "Let me look. "
    for index, path in enumerate(["a.txt", "b.txt"], start=1):
        for delta in call(index, "computer_read_file", {"path": path}, f"call_{index}"):
            yield delta


async def refused(messages, info):
    """Is told no, says so and carries on with something else."""
    got = results(messages)
    if not got:
        for delta in call(0, "computer_write_file", {"path": "denied.txt", "contents": "x"}, "call_denied"):
            yield delta
    elif len(got) == 1:
        answer = got[0]
        reason = answer.get("reason", answer) if isinstance(answer, dict) else answer
        yield f"That was refused ({reason}), so I look instead. "
        for delta in call(1, "computer_list_files", {}, "call_list"):
            yield delta
    else:
        yield "Done without it."


async def loop(messages, info):
    """Makes the same call for ever."""
    for delta in call(0, "computer_list_files", {"path": "."}, f"call_loop_{len(results(messages))}"):
        yield delta


async def backend(messages, info):
    """Calls a tool of its own, which the server carries out."""
    got = results(messages)
    if got:
        yield f"The clock says {got[0]}"
        return
    for delta in call(0, "clock", {}, "call_clock"):
        yield delta


async def boom(messages, info):
    """Fails in the middle of a sentence."""
    yield "partial "
    raise RuntimeError("model fell over")


async def slow(messages, info):
    """Says a word every half second, ten seconds long."""
    for n in range(20):
        await asyncio.sleep(0.5)
        yield f"{n} "


async def stuck(messages, info):
    """Says a word and then nothing for a minute."""
    yield "wait "
    await asyncio.sleep(60)


async def gated(messages, info):
    """Calls a tool of the server's own that wants a person's yes, and says what came of it."""
    if answers := results(messages):
        yield f"Outcome: {answers[-1]}"
        return
    for delta in call(0, "wire_money", {"amount": 5}, "call_wire"):
        yield delta


def agent(script, **settings):
    return Agent(FunctionModel(stream_function=script), **settings)


backend_agent = agent(backend)


@backend_agent.tool_plain
def clock() -> str:
    return "09:00"


def gated_agent():
    gate = agent(gated, output_type=[str, DeferredToolRequests])

    @gate.tool_plain(requires_approval=True)
    def wire_money(amount: int) -> str:
        return f"wired {amount}"

    return gate


def endpoint(bot, **settings):
    async def handle(request):
        return await AGUIAdapter.dispatch_request(request, agent=bot, **settings)

    return handle


async def unavailable(request):
    return PlainTextResponse("restarting", status_code=503)


async def ready(request):
    return PlainTextResponse("ready")


scripts = [chat, think, notes, parallel, refused, loop, boom, slow, stuck]
app = Starlette(
    routes=[
        *[Route(f"/{script.__name__}", endpoint(agent(script)), methods=["POST"]) for script in scripts],
        Route("/backend", endpoint(backend_agent), methods=["POST"]),
        Route("/gated", endpoint(gated_agent()), methods=["POST"]),
        Route("/usage", endpoint(agent(chat), include_usage=True), methods=["POST"]),
        Route("/unavailable", unavailable, methods=["POST"]),
        Route("/ready", ready, methods=["GET"]),
    ]
)
