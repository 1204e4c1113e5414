// Wakes this Copilot session when a message for it waits in Harken: a client of the daemon's socket, nothing more.
// It adds no tools and no hooks, asks for no permission and writes nothing to stdout, which belongs to Copilot.
// Copilot starts it with each session and ends it with the session. A daemon that is not there costs one small file
// read per try, and tries become rare. Its settings are in harken.json beside it, written by `harken connect`.

import { readFileSync } from "node:fs";
import net from "node:net";
import { joinSession } from "@github/copilot-sdk/extension";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 30_000;
const SERVED_MS = 5_000;
const HOST_MS = 8_000; // how long the host may take to accept a notification; the daemon waits a little longer
const MAX_LINE = 1 << 20;

// What the person's own words would look like must not hold outside text: the prompt hook adds that, marked.
const NOTICE = "Messages wait in Harken.";

const { home } = JSON.parse(readFileSync(new URL("./harken.json", import.meta.url), "utf8"));
const session = await joinSession();

let wait = FIRST_WAIT_MS;
connect();

function connect() {
  const socket = dial();
  if (socket === null) {
    later();
    return;
  }
  let rest = "";
  const began = Date.now();
  socket.setEncoding("utf8");
  socket.on("error", () => {}); // "close" follows
  socket.on("close", () => {
    // One that served for a while is replaced soon; one that is not there, or turns us away, is asked rarely.
    wait = Date.now() - began > SERVED_MS ? FIRST_WAIT_MS : wait;
    later();
  });
  socket.on("data", (data) => {
    const lines = (rest + data).split("\n");
    rest = lines.pop();
    if (rest.length > MAX_LINE) {
      socket.destroy();
      return;
    }
    for (const line of lines) {
      void hear(line, socket);
    }
  });
}

function later() {
  setTimeout(connect, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT_MS);
}

// Returns a socket that says hello once it is open, or null where no daemon has left its address.
function dial() {
  let address;
  try {
    address = readFileSync(`${home}/run/address`, "utf8").trim();
  } catch {
    return null;
  }
  const unix = /^unix:(.+)$/.exec(address);
  const tcp = /^tcp:127\.0\.0\.1:(\d{1,5}):(.*)$/.exec(address);
  if (!unix && !(tcp && Number(tcp[1]) <= 65535)) {
    return null;
  }
  const socket = unix ? net.connect(unix[1]) : net.connect(Number(tcp[1]), "127.0.0.1");
  const hello = {
    harken: 1,
    kind: "wake",
    pid: process.pid,
    ppid: process.ppid,
    cwd: process.cwd(),
    env: { COPILOT_AGENT_SESSION_ID: session.sessionId },
    token: tcp ? tcp[2] : "",
    host: "copilot-cli",
    native: session.sessionId,
    once: false,
  };
  socket.once("connect", () => socket.write(`${JSON.stringify(hello)}\n`));
  return socket;
}

async function hear(line, socket) {
  let message;
  try {
    message = JSON.parse(line);
  } catch {
    return;
  }
  if (typeof message?.wake !== "string" || typeof message.text !== "string") {
    return;
  }
  try {
    await notify(message.text);
    answer(socket, { done: message.wake });
  } catch (error) {
    // First the daemon takes the message back, then a turn is started in which the prompt hook hands it over.
    answer(socket, { failed: message.wake, reason: String(error?.message ?? error).slice(0, 200) });
    await session.send({ prompt: NOTICE, mode: "enqueue" }).catch(() => {});
  }
}

// The runtime's own notification: it starts a turn in an idle session, and waits for the next step in a busy one.
function notify(message) {
  const asked = session.connection.sendRequest("session.sendSystemNotification", {
    sessionId: session.sessionId,
    message,
  });
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error("the host did not answer")), HOST_MS).unref();
  });
  return Promise.race([asked, late]);
}

function answer(socket, message) {
  if (!socket.destroyed) {
    socket.write(`${JSON.stringify(message)}\n`);
  }
}
