// An editor on the protocol's own TypeScript library, version 1: it starts an agent and opens one conversation.
// Arguments: the folder, then the command of the agent. On stdin, one JSON value a line: {"prompt": TEXT}, {"cancel":
// true}, {"answer": KIND}, which answers the oldest open question. On stdout it says what it sees, one value a line.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, command, ...args] = process.argv.slice(2);
const questions = [];

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const agent = spawn(command, args, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
agent.on("exit", (code) => {
  say({ exit: code });
  process.exit(0);
});
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

function ask({ params, signal }) {
  say({ question: params });
  return new Promise((resolve) => {
    questions.push({ options: params.options, resolve });
    signal?.addEventListener("abort", () => {
      say({ withdrawn: params.toolCall.toolCallId });
      questions.splice(0, questions.length, ...questions.filter((each) => each.resolve !== resolve));
      resolve({ outcome: { outcome: "cancelled" } });
    });
  });
}

const editor = acp
  .client({ name: "editor" })
  .onRequest(acp.methods.client.session.requestPermission, ask)
  .onNotification(acp.methods.client.session.update, ({ params }) => say({ update: params.update }));

await editor.connectWith(stream, async (context) => {
  const hello = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {}, clientInfo: { name: "t", version: "1" } };
  say({ greeting: await context.request(acp.methods.agent.initialize, hello) });
  const { sessionId } = await context.request(acp.methods.agent.session.new, { cwd: folder, mcpServers: [] });
  say({ session: sessionId });
  const turns = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const { prompt, cancel, answer } = JSON.parse(line);
    if (prompt) {
      const said = { sessionId, prompt: [{ type: "text", text: prompt }] };
      const turn = context.request(acp.methods.agent.session.prompt, said);
      turns.push(turn.then((result) => say({ stop: result.stopReason }), (error) => say({ error: `${error}` })));
    }
    if (cancel) await context.notify(acp.methods.agent.session.cancel, { sessionId });
    if (answer) {
      const { options, resolve } = questions.shift();
      const { optionId } = options.find((each) => each.kind === answer);
      resolve({ outcome: { outcome: "selected", optionId } });
    }
  }
});
agent.stdin.end();
