import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";
import { Api, ConnectionLost, Refusal } from "../../../rkllm_mcp/surfaces/web/js/api.js";
import { RecordReader } from "../../../rkllm_mcp/surfaces/web/js/sse.js";

/**
 * The interface over a real server on a port of this machine.
 *
 * @param {import("node:http").RequestListener} answer
 * @param {(api: Api) => Promise<void>} use
 */
async function served(answer, use) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  try {
    await use(
      new Api(
        () => "secret",
        (path, init) => fetch(`http://127.0.0.1:${port}${path}`, init),
      ),
    );
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** @param {Api} api */
async function executed(api) {
  const { conversation, events } = await api.execute({ message: "x" }, new AbortController().signal);
  const kinds = [];
  for await (const event of events) kinds.push(event.kind);
  return { conversation, kinds };
}

test("records are the same wherever the stream is cut", () => {
  const stream = ': heartbeat\r\n\r\nid: 12\ndata: {"a":1}\n\ndata:x\ndata: y\n\nevent: z\nid: 1\n\n';
  for (let cut = 0; cut <= stream.length; cut += 1) {
    const reader = new RecordReader();
    const signs = [...reader.feed(stream.slice(0, cut)), ...reader.feed(stream.slice(cut))];
    assert.deepEqual(signs, [{ heartbeat: true }, { data: '{"a":1}', id: "12" }, { data: "x\ny" }]);
  }
});

test("an answer is a stream of events, with the key in a header", async () => {
  /** @type {import("node:http").IncomingMessage[]} */
  const seen = [];
  await served(
    (request, response) => {
      seen.push(request);
      response.writeHead(200, { "X-Conversation-Id": "c1", "Content-Type": "text/event-stream" });
      response.end(': heartbeat\n\ndata: {"kind":"text","text":"天"}\n\ndata: {"kind":"end","reason":"answered"}\n\n');
    },
    async (api) => assert.deepEqual(await executed(api), { conversation: "c1", kinds: ["text", "end"] }),
  );
  assert.equal(seen[0]?.headers.authorization, "Bearer secret");
  assert.equal(seen[0]?.url, "/v1/execute");
});

test("a stream without its end is a lost connection", async () => {
  await served(
    (_, response) => response.end('data: {"kind":"text","text":"x"}\n\n'),
    (api) => assert.rejects(executed(api), ConnectionLost),
  );
});

test("a stream that breaks is a lost connection", async () => {
  await served(
    (_, response) => response.write('data: {"kind":"text","text":"x"}\n\n', () => response.destroy()),
    (api) => assert.rejects(executed(api), ConnectionLost),
  );
});

test("an error at the end of a stream is what the board says", async () => {
  await served(
    (_, response) => response.end('data: {"error":{"message":"the disk is full"}}\n\n'),
    (api) => assert.rejects(executed(api), { name: "Refusal", message: "the disk is full" }),
  );
});

test("a refusal has the status, the field and the time to wait", async () => {
  const body = { error: { message: "too many", type: "rate_limit_error", param: "content.name", code: null } };
  await served(
    (_, response) => response.writeHead(429, { "Retry-After": "7" }).end(JSON.stringify(body)),
    async (api) => {
      const error = await api.get("/v1/me").catch((refused) => refused);
      assert.ok(error instanceof Refusal);
      const { status, message, param, code, retryAfter_s } = error;
      assert.deepEqual(
        [status, message, param, code, retryAfter_s],
        [429, "too many", "content.name", "rate_limit_error", 7],
      );
    },
  );
});

test("a refusal by something in between, which speaks no JSON, still has its status", async () => {
  await served(
    (_, response) => response.writeHead(413).end("<h1>Request Entity Too Large</h1>"),
    (api) => assert.rejects(api.get("/v1/me"), { name: "Refusal", status: 413 }),
  );
});

test("a proxy that does not reach the board is a lost connection, and the board's own refusal is none", async () => {
  for (const status of [502, 503, 504])
    await served(
      (_, response) => response.writeHead(status).end("<h1>Bad Gateway</h1>"),
      (api) => assert.rejects(api.get("/v1/me"), { name: "ConnectionLost" }),
    );
  await served(
    (_, response) => response.writeHead(503).end('{"error": {"message": "no model is loaded"}}'),
    (api) => assert.rejects(api.get("/v1/me"), { name: "Refusal", status: 503, message: "no model is loaded" }),
  );
});

test("a query leaves out what is not given, and an answer without a body is nothing", async () => {
  /** @type {(string | undefined)[]} */
  const addresses = [];
  await served(
    (request, response) => {
      addresses.push(request.url);
      response.writeHead(204).end();
    },
    async (api) => {
      assert.equal(await api.get("/v1/tools/history", { limit: 5, server: undefined, errors: true }), null);
      await api.delete("/v1/conversations/1");
    },
  );
  assert.deepEqual(addresses, ["/v1/tools/history?limit=5&errors=true", "/v1/conversations/1"]);
});

test("nobody there is a lost connection", async () => {
  const api = new Api(
    () => "",
    () => Promise.reject(new TypeError("failed")),
  );
  await assert.rejects(api.get("/v1/me"), ConnectionLost);
});

test("what did not come through is told, what somebody has ended is not", async () => {
  let lost = 0;
  const api = new Api(
    () => "",
    (_, init) => Promise.reject(init?.signal?.aborted ? init.signal.reason : new TypeError("failed")),
    () => {
      lost += 1;
    },
  );
  const ended = new AbortController();
  ended.abort();
  await assert.rejects(api.execute({ message: "x" }, ended.signal), ConnectionLost);
  assert.equal(lost, 0);
  await assert.rejects(api.execute({ message: "x" }, new AbortController().signal), ConnectionLost);
  assert.equal(lost, 1);
});
