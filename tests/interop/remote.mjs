// An agent elsewhere on the official TypeScript SDK (version 2), by Streamable HTTP. Says on stdout, one JSON value a line.
// Arguments: `legacy` or `auto`, then the address. The token is in the environment.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [mode, url] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${process.env.HARKEN_TOKEN}` };

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const client = new Client({ name: `ts-remote-${mode}`, version: "1" }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
say({ era: client.getProtocolEra?.() ?? "", tools: (await client.listTools()).tools.map((each) => each.name) });
for (const name of ["inbox_pull", "inbound_queue_stats"]) {
  const result = await client.callTool({ name, arguments: {} });
  say(JSON.parse(result.content[0].text));
}
await client.close();
