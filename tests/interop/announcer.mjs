// A server on the official TypeScript SDK (version 1) that announces something every now and then, for the tests of
// listeners. Started as a program: `stdio` or `http`. Over HTTP it prints its port.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const TICK_MS = 100;

function announcer() {
  const server = new Server({ name: "announcer-ts", version: "1" }, { capabilities: { logging: {}, tools: {} } });
  const timer = setInterval(async () => {
    try {
      await server.notification({ method: "channel/message", params: { channel: "ci", content: "build is green" } });
      await server.sendLoggingMessage({ level: "info", data: "still here" });
    } catch {
      // Nobody listens at the moment.
    }
  }, TICK_MS);
  server.onclose = () => clearInterval(timer);
  return server;
}

if (process.argv[2] === "stdio") {
  await announcer().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const web = createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport && request.method === "POST") {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await announcer().connect(transport);
    }
    if (!transport) return void response.writeHead(404).end();
    await transport.handleRequest(request, response);
  });
  web.listen(0, "127.0.0.1", () => console.log(`port ${web.address().port}`));
}
