// A subscriber on the official TypeScript SDK (version 2): it says on stdout, one JSON value a line, what Harken tells it.
// Arguments: `legacy` or `auto`, `poll` or `push`, the cursor to begin with or "", then the command of the server.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [mode, way, begin, command, ...args] = process.argv.slice(2);
const any = { "~standard": { version: 1, vendor: "harken-tests", validate: (value) => ({ value }) } };
const EVENT = { name: "message.received", arguments: { channel: "ci" } };

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const client = new Client({ name: `ts-${mode}-${way}`, version: "1" }, { versionNegotiation: { mode } });
client.fallbackNotificationHandler = async (notification) => {
  if (notification.method.startsWith("notifications/events/")) say(notification);
};
await client.connect(new StdioClientTransport({ command, args }));
const capabilities = client.getServerCapabilities();
say({ era: client.getProtocolEra?.() ?? "", extension: capabilities.extensions?.["io.modelcontextprotocol/events"] });
const { events } = await client.request({ method: "events/list", params: {} }, any);
say({ names: events.map((each) => each.name) });

let cursor = begin || null;
if (way === "poll") {
  for (;;) {
    const page = await client.request({ method: "events/poll", params: { ...EVENT, cursor, timeoutMs: 20_000 } }, any);
    cursor = page.cursor;
    say(page);
  }
} else {
  say(await client.request({ method: "events/stream", params: { ...EVENT, cursor } }, any, { timeout: 2 ** 31 - 1 }));
  await client.close();
}
