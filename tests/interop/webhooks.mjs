// A subscriber on @ai-sdk/mcp that has events posted to it. Says on stdout, one JSON value a line.
// Arguments: the address of the server, the file of a certificate with its key, or nothing for http. The token is in the
// environment.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import {
  experimental_createMCPClient as createMCPClient,
  experimental_createMCPEventWebhook as createMCPEventWebhook,
} from "@ai-sdk/mcp";

const [url, certificate] = process.argv.slice(2);

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const kept = new Map();
const store = {
  get: async (key) => kept.get(key),
  getById: async (id) => [...kept.values()].find((each) => each.id === id),
  set: async (each) => void kept.set(each.key, each),
  update: async (key, patch) => void kept.set(key, { ...kept.get(key), ...patch }),
  delete: async (key) => void kept.delete(key),
};

let heard = () => {};
const take = createMCPEventWebhook({
  store,
  onEvent: async ({ event }) => {
    say({ event: event.data.message_id, id: event.eventId });
    heard();
  },
});

const pem = certificate ? readFileSync(certificate) : undefined;
const answer = async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const headers = Object.entries(request.headers).map(([name, value]) => [name, String(value)]);
  const asked = new Request(new URL(request.url, origin), { method: request.method, headers, body: Buffer.concat(chunks) });
  const said = await take(asked);
  say({ answered: said.status });
  response.writeHead(said.status, Object.fromEntries(said.headers));
  response.end(Buffer.from(await said.arrayBuffer()));
};
const server = pem ? https.createServer({ cert: pem, key: pem }, answer) : http.createServer(answer);
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `${pem ? "https" : "http"}://${pem ? "localhost" : "127.0.0.1"}:${server.address().port}`;

const headers = { Authorization: `Bearer ${process.env.HARKEN_TOKEN}` };
const client = await createMCPClient({ transport: { type: "http", url, headers }, experimental_events: { store } });
const events = client.experimental_events;
say({ listed: (await events.list()).events.filter((each) => each.delivery.includes("webhook")).map((each) => each.name) });

function next() {
  return new Promise((resolve) => {
    heard = resolve;
  });
}

const delivery = { mode: "webhook", url: `${origin}/hooks`, ...(pem ? {} : { allowInsecureLocalhost: true }) };
let event = next();
const subscribed = await events.subscribe({ name: "message.received", arguments: { channel: "ci" }, delivery });
say({ subscribed: subscribed.id, truncated: subscribed.truncated });
await event;
event = next();
const refreshed = await events.refresh({ id: subscribed.id });
say({ refreshed: refreshed.id, status: refreshed.deliveryStatus });
await event;
await events.unsubscribe({ id: subscribed.id });
say({ left: kept.size });
await client.close();
server.close();
