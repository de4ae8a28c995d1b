// Settings of Node-RED for tests/end_to_end/test_node_red.py: no editor, and a client of MCP for function nodes.
const { createRequire } = require("node:module");
const load = createRequire(`${process.env.AGENTS}/npm/`);

module.exports = {
  httpAdminRoot: false,
  flowFile: "flows.json",
  credentialSecret: false,
  functionGlobalContext: {
    connectMcp: async (url) => {
      const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
      const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
      const client = new Client({ name: "node-red", version: "1" });
      await client.connect(new StreamableHTTPClientTransport(new URL(url)));
      return client;
    },
  },
};
