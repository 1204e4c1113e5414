// An agent elsewhere on the AI SDK's own MCP client, by Streamable HTTP. Says on stdout, one JSON value a line.
// Arguments: `legacy` or `auto`, then the address. The token is in the environment.
import { createMCPClient } from "@ai-sdk/mcp";

const [mode, url] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${process.env.HARKEN_TOKEN}` };

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const client = await createMCPClient({
  transport: { type: "http", url, headers },
  clientName: `ai-sdk-${mode}`,
  protocolVersionDiscovery: mode === "auto",
});
const tools = await client.tools();
say({ era: client.initializeResult.protocolVersion, tools: Object.keys(tools) });
for (const name of ["inbox_pull", "inbound_queue_stats"]) {
  const result = await tools[name].execute({}, { toolCallId: name, messages: [] });
  say(JSON.parse(result.content[0].text));
}
await client.close();
