// Lets the person answer elsewhere what Copilot asks before it uses a tool, while it asks in its own window too.
// A client of the Harken daemon's socket: one connection for each question. Whatever goes wrong, Copilot's own question
// stays, and nothing is allowed. It writes nothing to stdout, which belongs to Copilot. Its settings are in harken.json
// beside it, written by `harken connect copilot-cli --approvals`.

import { readFileSync } from "node:fs";
import net from "node:net";
import { joinSession } from "@github/copilot-sdk/extension";

const WAITS_MS = [250, 1_000, 5_000]; // between two attempts to ask; the last one repeats
const HOST_MS = 10_000; // how long Copilot may take to accept an answer
const MAX_BYTES = 1 << 20;

const { home } = JSON.parse(readFileSync(new URL("./harken.json", import.meta.url), "utf8"));
const asking = new Map(); // what Copilot asks now, by its id, and how that is called off

// With a handler, Copilot tells of its questions. It leaves each to Copilot: the answer comes by a call of its own.
const session = await joinSession({ onPermissionRequest: () => ({ kind: "no-result" }) });

session.on("permission.requested", ({ data }) => {
  const { requestId, permissionRequest: asked } = data ?? {};
  if (typeof requestId !== "string" || !asked || asking.has(requestId)) return;
  asking.set(
    requestId,
    askPerson({ requestId, asked }, (result) =>
      session.connection.sendRequest("session.permissions.handlePendingPermissionRequest", {
        sessionId: session.sessionId,
        requestId,
        result,
      }),
    ),
  );
});
session.on("permission.completed", ({ data }) => {
  asking.get(data?.requestId)?.();
  asking.delete(data?.requestId);
});

// Asks until there is an answer, and hands it to Copilot. Returns what to call when Copilot has an answer: ours, or one
// that was given in its own window.
function askPerson(payload, reply) {
  const body = Buffer.from(JSON.stringify({ sessionId: session.sessionId, cwd: process.cwd(), ...payload }));
  let socket;
  let timer;
  let isOver = false;
  let failures = 0;

  const again = () => {
    if (!isOver) timer = setTimeout(open, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)]);
  };
  const answered = async (text, from) => {
    isOver = true;
    // Without a word the daemon leaves the question to Copilot.
    const said = text ? await bounded(reply(JSON.parse(text))) : undefined;
    if (said?.success === true) from.end("!");
    else from.destroy();
  };
  function open() {
    let data = Buffer.alloc(0);
    const mine = (socket = dial(body));
    if (mine === null) return again();
    mine.on("close", again);
    mine.on("data", (chunk) => {
      data = Buffer.concat([data, chunk]);
      const text = data.length > MAX_BYTES ? "" : whole(data);
      if (text !== undefined && !isOver) answered(text, mine).catch(() => mine.destroy());
    });
  }

  open();
  return () => {
    if (isOver) return; // it is our own answer that Copilot tells of
    isOver = true;
    clearTimeout(timer);
    if (socket && !socket.destroyed) socket.end("-");
  };
}

// One answer: a line `EXIT OUT_BYTES ERR_BYTES`, then the bytes. Undefined while it is not complete, empty for none.
function whole(data) {
  const end = data.indexOf(10);
  if (end < 0) return undefined;
  const [, out, err] = data.subarray(0, end).toString("latin1").split(" ").map(Number);
  if (!(out >= 0) || !(err >= 0)) return "";
  const start = end + 1;
  return data.length < start + out + err ? undefined : data.subarray(start, start + out).toString("utf8");
}

// Returns a socket that says hello and asks once it is open, or null where no daemon has left its address.
function dial(body) {
  let address;
  try {
    address = readFileSync(`${home}/run/address`, "utf8").trim();
  } catch {
    return null;
  }
  const unix = /^unix:(.+)$/.exec(address);
  const tcp = /^tcp:127\.0\.0\.1:(\d{1,5}):(.*)$/.exec(address);
  if (!unix && !(tcp && Number(tcp[1]) <= 65535)) return null;
  const socket = unix ? net.connect(unix[1]) : net.connect(Number(tcp[1]), "127.0.0.1");
  const hello = {
    harken: 1,
    kind: "hook",
    moment: "ask",
    payload: body.length,
    pid: process.pid,
    ppid: process.ppid,
    cwd: process.cwd(),
    env: { COPILOT_AGENT_SESSION_ID: session.sessionId },
    token: tcp ? tcp[2] : "",
    host: "copilot-cli",
  };
  socket.on("error", () => socket.destroy());
  socket.once("connect", () => socket.write(Buffer.concat([Buffer.from(`${JSON.stringify(hello)}\n`), body])));
  return socket;
}

// Resolves to undefined when it fails or takes too long.
function bounded(promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, HOST_MS)));
  return Promise.race([Promise.resolve(promise).catch(() => undefined), late]).finally(() => clearTimeout(timer));
}
