"""A chain, troubled nodes before it and the program, for scripts/measure-trouble. Knows no scenario."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("TG_PROGRAM", ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/tiergate")).resolve()
OWNER, BUYER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
MULTICALL = "0xcA11bde05977b3631167028862bE2a173976CA11"
REGISTRIES = {"identity": "IdentityRegistry", "stake_vault": "StakeVault", "reputation": "ReputationRegistry",
              "validation": "ValidationRegistry", "organization": "OrganizationRegistry"}
MINT, STAKE, SELL = "mintWithId(address,uint256,string)", "stake(uint256,uint256)", "transferFrom(address,address,uint256)"
ORGANIZATIONS = "getAgentOrganizations(uint256)"

now, word = time.monotonic, lambda number: f"{number:064x}"
padded = lambda address: address[2:].lower().rjust(64, "0")


class Http:
    """Asks at one port, over as many connections as are needed at once."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def ask(self, body=b"", path="/", method="POST"):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            head, answer = await message(reader)
        except BaseException:
            writer.close()
            raise
        self.idle.append((reader, writer))
        return int(head[9:12]), answer


async def message(reader):
    """The head and the body of an HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))


async def until(holds, seconds=30):
    """Waits until this holds; false if it never does."""
    ends = now() + seconds
    while not await holds():
        if now() > ends:
            return False
        await asyncio.sleep(0.05)
    return True


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Rig:
    """A folder, programs and tasks. None of them is left when the rig is."""

    async def __aenter__(self):
        self.folder, self.started, self.tasks = Path(tempfile.mkdtemp(prefix="trouble-")), [], []
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        for process in reversed(self.started):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder)
        # A fault of the stage is none of the program.
        for fault in ended:
            if isinstance(fault, Exception):
                raise fault

    async def start(self, port, *argv):
        """Starts a program, and waits until it listens."""
        log = open(self.folder / f"log-{port}", "w")
        argv = [str(word) for word in argv]
        self.started.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

        async def listens():
            return not socket.socket().connect_ex(("127.0.0.1", port))
        if not await until(listens):
            raise RuntimeError(f"{argv[0]} does not start: {Path(log.name).read_text()[-2000:]}")

    def run(self, work):
        self.tasks.append(asyncio.ensure_future(work))


class Chain:
    """The documented registries and so many agents of one owner. Blocks are made on demand."""

    def __init__(self, agents):
        self.agents = agents

    async def start(self, rig):
        port, anvil = free_port(), next((ROOT / "tools/node_modules/@foundry-rs").glob("anvil-linux-*/bin/anvil"))
        self.http = Http(port)
        await rig.start(port, anvil, "--host", "127.0.0.1", "--port", port, "--silent", "--no-mining", "--gas-limit", 9 * 10**9,
                        "--timestamp", int(time.time()) - 20_000)
        artifact = lambda name: json.loads((ROOT / f"contracts/artifacts/{name}.json").read_text())
        await self.rpc("anvil_setCode", MULTICALL, artifact("Multicall3")["deployedBytecode"])
        creation = lambda name: {"from": OWNER, "data": artifact(name)["bytecode"], "gas": hex(5_000_000)}
        sent = [await self.rpc("eth_sendTransaction", creation(name)) for name in REGISTRIES.values()]
        await self.mine(15_000)
        receipts = [await self.rpc("eth_getTransactionReceipt", each) for each in sent]
        self.at = {key: receipt["contractAddress"] for key, receipt in zip(REGISTRIES, receipts)}
        hashed = {each: await self.rpc("web3_sha3", "0x" + each.encode().hex()) for each in (MINT, STAKE, SELL, ORGANIZATIONS)}
        self.selectors = {each: digest[2:10] for each, digest in hashed.items()}
        for agent in range(1, self.agents + 1):
            await self.send("identity", MINT, padded(OWNER) + word(agent) + word(96) + word(0))
            await self.stake(agent, 600_000)
        # More blocks than a node may give the logs of at once.
        for ago in range(14_000, 13_950, -1):
            await self.mine(ago)

    async def rpc(self, method, *params):
        _, answer = await self.http.ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        answer = json.loads(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def send(self, registry, function, arguments):
        data = "0x" + self.selectors[function] + arguments
        await self.rpc("eth_sendTransaction", {"from": OWNER, "to": self.at[registry], "data": data, "gas": hex(400_000)})

    async def stake(self, agent, tokens=1):
        await self.send("stake_vault", STAKE, word(agent) + word(tokens * 10**18))

    async def mine(self, ago=0):
        """Makes a block of so many seconds ago, at most one a second."""
        await self.rpc("evm_setNextBlockTimestamp", int(time.time()) - ago)
        await self.rpc("evm_mine")
        self.head = int(await self.rpc("eth_blockNumber"), 16)

    async def mine_every(self, seconds, change=None):
        for count in itertools.count(1):
            await asyncio.sleep(seconds)
            if change:
                await change(count)
            await self.mine()

    async def sell(self, agent):
        await self.send("identity", SELL, padded(OWNER) + padded(BUYER) + word(agent))
        await self.mine()

    async def signed(self, agent):
        """The body of a request that the owner signed."""
        said = {"agentId": agent, "nonce": random.getrandbits(200), "timestamp": int(time.time())}
        fields = {"name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address"}
        typed = lambda fields: [{"name": name, "type": kind} for name, kind in fields.items()]
        signature = await self.rpc("eth_signTypedData_v4", OWNER, {
            "types": {"EIP712Domain": typed(fields), "Verification": typed(dict.fromkeys(said, "uint256"))},
            "domain": dict(zip(fields, ("Service Verification", "1", 8004, self.at["identity"]))),
            "primaryType": "Verification", "message": {name: str(value) for name, value in said.items()}})
        return json.dumps(said | {"agentId": str(agent), "nonce": str(said["nonce"]), "signature": signature}).encode()


class Node:
    """Stands before the chain, and treats each request by its rule: an async function of the calls, and of what asks the chain
    for their answers. It returns answers, or a status, headers and a body."""

    def __init__(self, rig, chain, latency):
        self.rig, self.chain, self.latency, self.rule, self.polls = rig, chain, latency, honest, 0

    async def start(self):
        server = await asyncio.start_server(lambda *streams: self.rig.run(self.serve(*streams)), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                asked = json.loads((await message(reader))[1])
                calls = asked if isinstance(asked, list) else [asked]
                self.polls += any(call["method"] == "eth_getLogs" for call in calls)
                await asyncio.sleep(self.latency)
                answer = await self.rule(calls, self.forward)
                if isinstance(answer, list):
                    answer = 200, "", json.dumps(answer if isinstance(asked, list) else answer[0]).encode()
                status, headers, body = answer
                writer.write(f"HTTP/1.1 {status} -\r\n{headers}Content-Type: application/json\r\n"
                             f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()

    async def forward(self, calls):
        _, answers = await self.chain.http.ask(json.dumps(calls).encode())
        answers = {answer["id"]: answer for answer in json.loads(answers)}
        return [answers[call["id"]] for call in calls]


# Rules of nodes, and what they refuse with: a whole answer, or one for a call.


async def honest(calls, forward):
    return await forward(calls)


async def silent(calls, forward):
    await asyncio.sleep(3_600)


def always(answer):
    async def rule(calls, forward):
        return answer
    return rule


def error(code, text):
    return lambda call: {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": text}}


BAD_GATEWAY = 502, "", b"{}"
LONG = 200, "", b'"' + 9 * 2**20 * b"0" + b'"'
TOO_MANY = error(-32005, "query returned more than 10000 results")
INTERNAL = error(-32603, "Internal error")
NOT_FOUND = error(-32000, "header not found")


def first(holds, rule, then=honest):
    """A rule for as long as this holds, and then another one."""
    async def both(calls, forward):
        return await (rule if holds() else then)(calls, forward)
    return both


def blocks(call):
    """The first block of which logs are asked for, and the last."""
    return [int(call["params"][0][key], 16) for key in ("fromBlock", "toBlock")]


def refuses_logs(refusal, is_refused=lambda call: True, then=honest):
    async def rule(calls, forward):
        refused = [call["method"] == "eth_getLogs" and is_refused(call) for call in calls]
        if any(refused) and isinstance(refusal, tuple):
            return refusal
        answers = await then(calls, forward)
        return [refusal(call) if no else answer for call, no, answer in zip(calls, refused, answers)]
    return rule


def late(chain):
    """Gives no log of the newest block."""
    async def rule(calls, forward):
        newest, answers = chain.head, await forward(calls)
        for call, answer in zip(calls, answers):
            if call["method"] == "eth_getLogs":
                answer["result"] = [log for log in answer["result"] if int(log["blockNumber"], 16) < newest]
        return answers
    return rule


def behind(chain, share):
    """Of the back ends so many don't have the newest block yet."""
    async def rule(calls, forward):
        if random.random() >= share:
            return await forward(calls)
        head, answers = chain.head - 1, []
        for call in json.loads(json.dumps(calls).replace('"latest"', f'"{head:#x}"')):
            method, params = call["method"], call["params"]
            block = {"eth_call": 1, "eth_getBlockByNumber": 0}.get(method)
            if method == "eth_getLogs":
                params[0].update(zip(("fromBlock", "toBlock"), (hex(min(head, number)) for number in blocks(call))))
            if block is not None and int(params[block], 16) > head:
                answers.append(NOT_FOUND(call) if method == "eth_call" else {"jsonrpc": "2.0", "id": call["id"], "result": None})
            else:
                answers += await forward([call])
        return answers
    return rule


def heavy(chain, agent):
    """Reading an agent's organizations takes the node a second, and then burns what gas there is."""
    wanted = chain.selectors[ORGANIZATIONS] + word(agent)

    async def rule(calls, forward):
        text = json.dumps(calls)
        await asyncio.sleep(1 if wanted in text else 0)
        return await forward(json.loads(text.replace(wanted, "ffffffff" + word(agent))))
    return rule


class Stage:
    """A chain, its nodes and the program, whose agents ask. `asks`: when, the status, the agent."""

    def __init__(self, rig, chain, nodes, api, admin):
        self.rig, self.chain, self.nodes, self.node, self.asks = rig, chain, nodes, nodes[0], []
        self.api, self.admin, self.samples, self.stopped, self.asking = Http(api), Http(admin), [], False, []

    async def sample(self):
        """Notes the follower's mode and the calls so far, four times a second."""
        while True:
            lines = [line.rsplit(" ", 1) for line in (await self.admin.ask(path="/metrics", method="GET"))[1].decode().splitlines()]
            mode = [name.split('"')[1] for name, value in lines if name.startswith("tiergate_follower_mode{") and value == "1"]
            calls = sum(float(value) for name, value in lines if name.startswith("tiergate_rpc_calls_total{"))
            self.samples.append((now(), mode[0], calls))
            await asyncio.sleep(0.25)

    async def ask(self, agent, signed=None):
        """Asks with the agent's key, or with this signed body."""
        asked, body = now(), signed or json.dumps({"apiKey": f"svc_live_v1_{agent:064x}"}).encode()
        answer, _ = await self.api.ask(body, "/verify/signature" if signed else "/verify")
        self.asks.append((asked, answer, agent))
        return answer

    async def keep_asking(self, agent, phase):
        due = now() + phase
        while not self.stopped:
            await asyncio.sleep(due - now())
            await self.ask(agent)
            due = max(due + 1, now())

    async def warm(self, ramp=1):
        """All agents begin to ask in this time, each once a second. Ends when each of them is answered."""
        agents = self.chain.agents
        self.asking = [asyncio.ensure_future(self.keep_asking(agent, ramp * agent / agents)) for agent in range(1, agents + 1)]

        async def is_warm():
            answered = {agent for at, answer, agent in self.asks[-2 * agents:] if answer == 200 and at > now() - 1.5}
            return await self.follows() and len(answered) == agents
        if not await until(is_warm, ramp + 15):
            raise RuntimeError(f"it never answers all: {self.answered(now() - 5)} of those asked at last; {self.modes(now() - 5)}")
        await asyncio.sleep(1)

    async def follows(self):
        return bool(self.samples) and self.samples[-1][1] == "following"

    async def stop(self):
        """Since all have stopped, each that asked has its answer."""
        self.stopped = True
        await asyncio.gather(*self.asking)

    def modes(self, begin):
        return ", ".join(sorted({mode for at, mode, _ in self.samples if at >= begin}))

    def calls_a_second(self, begin):
        within = [(at, calls) for at, _, calls in self.samples if at >= begin]
        return round((within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0]), 1)

    def share(self, begin):
        """The percentage that was answered of those that asked since."""
        answers = [answer == 200 for at, answer, _ in self.asks if at >= begin]
        return 100 * sum(answers) / max(1, len(answers))

    def answered(self, begin):
        return f"{self.share(begin):.1f} % of {sum(at >= begin for at, *_ in self.asks)} answered"

    async def passes_for(self, agent, begin):
        """How long after this time the agent's key still passes: at most for ten seconds."""
        async def is_refused():
            return await self.ask(agent) == 401
        await until(is_refused, begin + 10 - now())
        return now() - begin


@contextlib.asynccontextmanager
async def staged(agents, nodes=1, latency=0.02, age=10, **settings):
    """The program on a chain of so many agents whose last block has this age, ready and following."""
    async with Rig() as rig:
        chain = Chain(agents)
        await chain.start(rig)
        fill = [PROGRAM.parent / "examples/fill", rig.folder / "data", str(agents), "31337", OWNER]
        subprocess.run(fill, check=True, capture_output=True)
        nodes = [Node(rig, chain, latency) for _ in range(nodes)]
        for node in nodes:
            await node.start()
        api, admin, file = free_port(), free_port(), rig.folder / "tiergate.toml"
        settings = {"rpc_urls": [f"http://127.0.0.1:{node.port}" for node in nodes], "chain_id": 31337} | settings
        sections = {"listen": {"api": f"127.0.0.1:{api}", "admin": f"127.0.0.1:{admin}"}, "chain": settings,
                    "chain.contracts": chain.at, "keys": {"end_with_signer": True},
                    "tiers": {"requests_per_minute": [1_000_000] * 4},
                    "store.embedded": {"create": True, "path": str(rig.folder / "data")}}
        file.write_text("".join(f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
                                for name, section in sections.items()))
        await chain.mine(age)
        await rig.start(admin, PROGRAM, "run", "--config", file)
        stage = Stage(rig, chain, nodes, api, admin)
        rig.run(stage.sample())
        if not await until(stage.follows):
            raise RuntimeError("it does not follow")
        yield stage

