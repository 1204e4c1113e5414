// Harken in opencode. `harken connect opencode` wrote this file, `harken disconnect opencode` removes it.
//
// It hands messages over between tool calls and with prompts, tells Harken when a conversation works and when it is
// idle, and wakes an idle one. It asks the Harken daemon for everything; without one it does nothing. It never
// throws, never prints, and never keeps opencode waiting longer than ASK_MS.

import fs from "node:fs"
import net from "node:net"
import path from "node:path"

const HOME = "HARKEN_HOME" // filled in by `harken connect`
const APPROVALS = "HARKEN_APPROVALS" // whether what opencode asks is answered elsewhere too; filled in like the above
const HOST = "opencode"
const ASK_MS = 2000 // the longest that a hook waits for the daemon
const WAKE_MS = 10000 // the longest that opencode may take to accept a prompt
const QUIET_MS = 15000 // a daemon that let a hook wait in vain is left alone this long
const RETRY_MS = [250, 1000, 5000] // between two attempts to listen for wakes; the last one repeats
const MAX_PROMPT = 32768
const MAX_DEPTH = 8 // subagents of subagents
const MAX_BYTES = 1 << 20
const MAX_ERROR = 1000
const STOPPED = "MessageAbortedError" // the person did that
const TOO_MANY = 429
const LIMIT = /usage limit|rate limit|quota|too many requests/i
const TOOLS = /(inbox_pull|inbox_read|wait_for_inbound_message|check_inbox)$/
const DELIVERY = /"delivery_id":\s*"(d-[0-9a-z]{4,40})"/g

function address() {
  const line = fs.readFileSync(path.join(HOME, "run", "address"), "utf8").split("\n", 1)[0].trim()
  if (line.startsWith("unix:")) return { where: { path: line.slice(5) }, token: "" }
  const [, host, port, token] = /^tcp:([^:]+):(\d+):(.*)$/.exec(line)
  return { where: { host, port: Number(port) }, token }
}

// Opens a connection and says hello. Throws when there is no daemon to be found; later failures are 'error' events.
function dial(kind, cwd, more, body = Buffer.alloc(0)) {
  const { where, token } = address()
  const env = process.env.OPENCODE_PID ? { OPENCODE_PID: process.env.OPENCODE_PID } : {}
  // `ppid` is the host's process, which for a hook is its parent. A plugin lives in it.
  const hello = { harken: 1, kind, pid: process.pid, ppid: process.pid, cwd, env, token, host: HOST, ...more }
  const socket = net.connect(where)
  socket.on("error", () => socket.destroy())
  socket.write(Buffer.concat([Buffer.from(JSON.stringify(hello) + "\n"), body]))
  return socket
}

// One answer: a line `EXIT OUT_BYTES ERR_BYTES`, then the bytes. Undefined while it is not complete.
function answer(data) {
  const end = data.indexOf(10)
  if (end < 0) return undefined
  const [, out, err] = data.subarray(0, end).toString("latin1").split(" ").map(Number)
  if (!(out >= 0) || !(err >= 0)) throw new Error("not an answer")
  const start = end + 1
  return data.length < start + out + err ? undefined : data.subarray(start, start + out).toString("utf8")
}

// Tells the daemon that something happened. Resolves, always, to { text, close, isHeard }: what the model should read,
// what to call with whether it stands where the model will read it, and whether the daemon has answered. Unless the
// text stands there, the daemon takes it back.
function makeAsk(cwd) {
  const nothing = { text: "", close() {}, isHeard: false }
  let quietUntil = 0

  return (moment, payload) =>
    new Promise((resolve) => {
      // opencode does not wait for the end of a turn to be told.
      if (Date.now() < quietUntil && moment !== "stop") return resolve(nothing)
      let socket
      let data = Buffer.alloc(0)
      const give = (result) => {
        clearTimeout(timer)
        if (result === nothing) socket?.destroy()
        resolve(result)
      }
      const timer = setTimeout(() => {
        quietUntil = Date.now() + QUIET_MS
        give(nothing)
      }, ASK_MS)
      try {
        const body = Buffer.from(JSON.stringify({ cwd, ...payload }))
        socket = dial("hook", cwd, { moment, payload: body.length }, body)
        socket.on("close", () => give(nothing))
        socket.on("data", (chunk) => {
          try {
            data = Buffer.concat([data, chunk])
            if (data.length > MAX_BYTES) throw new Error("too long for an answer")
            const text = answer(data)
            const close = (isPlaced) => (isPlaced ? socket.end("+") : socket.destroy())
            if (text !== undefined) give({ text, close, isHeard: true })
          } catch {
            give(nothing)
          }
        })
      } catch {
        give(nothing)
      }
    })
}

function bellRings() {
  try {
    return fs.statSync(path.join(HOME, "run", "bells", HOST)).size > 0
  } catch {
    return false
  }
}

// Listens for wakes of one conversation until told to stop, across restarts of the daemon.
function listen(cwd, conversation, wake) {
  let socket
  let timer
  let isOver = false
  let failures = 0

  const again = () => {
    if (isOver) return
    timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)])
    timer.unref?.()
  }
  const heard = async (line, from) => {
    const { wake: carrier, text } = JSON.parse(line)
    if (typeof carrier !== "string" || typeof text !== "string") return
    const reason = await wake(text)
    from.write(JSON.stringify(reason ? { failed: carrier, reason } : { done: carrier }) + "\n")
  }
  function open() {
    // A new daemon takes a conversation for idle until it hears of it.
    if (conversation.isBusy) return again()
    try {
      let rest = ""
      const mine = (socket = dial("wake", cwd, { native: conversation.id, once: false }))
      mine.unref?.()
      mine.setEncoding("utf8")
      mine.on("close", again)
      mine.on("data", (chunk) => {
        failures = 0
        const lines = (rest + chunk).split("\n")
        rest = lines.pop()
        if (rest.length > MAX_BYTES) mine.destroy()
        for (const line of lines) heard(line, mine).catch(() => mine.destroy())
      })
    } catch {
      again()
    }
  }

  open()
  return () => {
    isOver = true
    clearTimeout(timer)
    socket?.destroy()
  }
}

// Lets the person answer elsewhere what opencode asks, while it asks in its own window too. `reply` hands the answer to
// opencode, and resolves to whether it took it. Returns what to call when it was answered here, or is asked no more.
function askPerson(cwd, payload, reply) {
  const body = Buffer.from(JSON.stringify({ cwd, ...payload }))
  let socket
  let timer
  let isOver = false
  let failures = 0

  const again = () => {
    if (isOver) return
    timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)])
    timer.unref?.()
  }
  const answered = async (text, from) => {
    isOver = true
    // Without a word the daemon leaves the question to opencode.
    const isTaken = Boolean(text) && (await reply(JSON.parse(text)).catch(() => false))
    if (isTaken) from.end("!")
    else from.destroy()
  }
  function open() {
    let data = Buffer.alloc(0)
    try {
      const mine = (socket = dial("hook", cwd, { moment: "ask", payload: body.length }, body))
      mine.unref?.()
      mine.on("close", again)
      mine.on("data", (chunk) => {
        try {
          data = Buffer.concat([data, chunk])
          if (data.length > MAX_BYTES) throw new Error("too long for an answer")
          const text = answer(data)
          if (text !== undefined && !isOver) answered(text, mine).catch(() => mine.destroy())
        } catch {
          isOver = true
          mine.destroy()
        }
      })
    } catch {
      again()
    }
  }

  open()
  return (isHere) => {
    if (isOver) return // it is our own answer that opencode tells of
    isOver = true
    clearTimeout(timer)
    if (isHere && socket && !socket.destroyed) socket.end("-")
    else socket?.destroy()
  }
}

// Puts a text into a tool's result; says whether there was a place for it.
function place(output, text) {
  if (typeof output?.output === "string") output.output += `\n\n${text}`
  // opencode cuts off the end of what an MCP tool returns, after this hook.
  else if (Array.isArray(output?.content)) output.content.unshift({ type: "text", text })
  else return false
  return true
}

// The deliveries that a result of Harken's own tools holds: opencode has one connection for all conversations, so only
// here it is known whose result it is.
function deliveries(tool, output) {
  if (!TOOLS.test(tool) || !Array.isArray(output?.content)) return []
  const text = output.content.map((part) => (part.type === "text" ? part.text : "")).join("\n")
  return [...text.matchAll(DELIVERY)].map((found) => found[1])
}

// The ids of a part right after another one: opencode keeps the parts of a message in the order of their ids.
const idsAfter = ({ id, sessionID, messageID }) => ({ id: `${id}h`, sessionID, messageID })

// What is told of an error with which a turn has ended.
function failureOf(error) {
  const { message = "", statusCode } = error?.data ?? {}
  const is_limit = statusCode === TOO_MANY || LIMIT.test(message)
  return { error: `${error?.name ?? "error"}: ${message}`.slice(0, MAX_ERROR), is_limit }
}

// Resolves to undefined when it fails or takes too long.
function bounded(promise, ms) {
  let timer
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms)))
  return Promise.race([Promise.resolve(promise).catch(() => undefined), late]).finally(() => clearTimeout(timer))
}

// The plugin may be loaded twice, for the person and for the project: the last one speaks. Returns whether it is this.
function takeOver(directory) {
  const speakers = (globalThis[Symbol.for("harken.opencode")] ??= new Map())
  const me = {}
  speakers.set(`${HOME}\n${directory}`, me)
  return () => speakers.get(`${HOME}\n${directory}`) === me
}

export const Harken = async ({ client, directory }) => {
  const isSpeaker = takeOver(directory)
  const ask = makeAsk(directory)
  const conversations = new Map() // those that the person is in, by session id
  const children = new Map() // whether a session belongs to a subagent, as far as that is known
  const asking = new Map() // what opencode asks now, by its id, and how that is called off
  const isOneShot = process.argv.slice(2).includes("run") // it ends when it is idle: nothing to wake
  const isTerminal = /tui[\\/]worker/.test(process.argv[1] ?? "") // shows one conversation at a time

  // A hook that fails must look like one that had nothing to say.
  const safely = (hook) => async (input, output) => {
    try {
      if (isSpeaker()) await hook(input, output)
    } catch {}
  }

  const isChild = async (id) => {
    if (!children.has(id)) {
      const found = await bounded(client.session.get({ path: { id } }), ASK_MS)
      if (!found?.data) return true // whose it is cannot be told: it gets nothing
      children.set(id, Boolean(found.data.parentID))
    }
    return children.get(id)
  }

  // The conversation of the person that a session belongs to; undefined where that cannot be told.
  const rootOf = async (id) => {
    for (let depth = 0; depth < MAX_DEPTH; depth++) {
      const found = await bounded(client.session.get({ path: { id } }), ASK_MS)
      if (!found?.data) return undefined
      if (!found.data.parentID) return id
      id = found.data.parentID
    }
  }

  const reply = async ({ id, questions }, said) => {
    const [what, how, body] = said.reject ? ["question", "reject", {}] : [questions ? "question" : "permission", "reply", said]
    const url = `/${what}/${encodeURIComponent(id)}/${how}`
    const headers = { "content-type": "application/json" }
    return (await bounded(client._client.post({ url, body, headers }), WAKE_MS))?.data === true
  }

  const onAsked = async (request) => {
    if (!APPROVALS || isOneShot || asking.has(request.id)) return
    let isOver = false
    asking.set(request.id, () => (isOver = true))
    const root = await rootOf(request.sessionID)
    if (isOver) return
    if (!root) return asking.delete(request.id)
    const payload = { session_id: root, turn: conversations.get(root)?.turn ?? "", asked: request }
    asking.set(request.id, askPerson(directory, payload, (said) => reply(request, said)))
  }

  // Tells that opencode asks the person something, or that the last of what it asked was answered.
  const waits = async ({ id, sessionID }, asks) => {
    if (isOneShot) return
    const conversation = conversations.get(await rootOf(sessionID))
    if (!conversation) return
    conversation.open.add(id)
    await report(conversation, "halt", { is_asking: true, asks })
  }
  const answered = ({ requestID }) => {
    for (const conversation of conversations.values()) {
      if (conversation.open.delete(requestID) && !conversation.open.size) report(conversation, "halt", { is_asking: false })
    }
  }

  const calledOff = (id, isHere) => {
    asking.get(id)?.(isHere)
    asking.delete(id)
  }

  // What is told of one conversation is told in order, one after the other.
  const tell = (conversation, moment, payload) => {
    const about = { session_id: conversation.id, turn: conversation.turn, results: [], ...payload }
    const next = conversation.told.then(() => ask(moment, about))
    conversation.told = next.catch(() => undefined)
    return next
  }
  const report = async (conversation, moment, payload) => (await tell(conversation, moment, payload)).close(true)

  const enter = (id) => {
    const known = conversations.get(id)
    if (known) return known
    const conversation = {
      id,
      told: Promise.resolve(),
      choice: {}, // the agent and model of the last prompt
      isBusy: false,
      isBroken: false, // the turn was stopped or failed
      failure: {}, // how it failed
      open: new Set(), // what opencode asks the person in it
      isLeft: false, // the person went on in another one
      turn: "", // the prompt that began the turn
      step: "", // the model step that runs
      asked: "", // the step in which the daemon was asked last
      opened: "", // the step in which the last prompt came
    }
    conversations.set(id, conversation)
    return conversation
  }

  const leave = (conversation) => {
    conversations.delete(conversation.id)
    conversation.stopListening?.()
    return report(conversation, "end")
  }

  // The person went on in this one. What another one still does, it finishes.
  const leaveOthers = (conversation) => {
    const others = [...conversations.values()].filter((other) => other !== conversation)
    for (const other of others) other.isLeft = true
    return Promise.all(others.filter((other) => !other.isBusy).map(leave))
  }

  // Returns why it failed; nothing when opencode took the text.
  const wake = async (conversation, text) => {
    // Without them opencode would use its default agent, which may do more than the one the person chose.
    const body = { ...conversation.choice, parts: [{ type: "text", text }] }
    const result = await bounded(client.session.promptAsync({ path: { id: conversation.id }, body }), WAKE_MS)
    if (!result) return "opencode did not answer"
    return result.error ? "opencode refused the prompt" : ""
  }

  // Tells that a turn is over, again and again while the daemon has not heard it and no other turn began: it would take
  // the conversation for busy, and not wake it. Resolves after the first attempt.
  const reportStop = async (conversation, payload, failures = 0) => {
    const { turn } = conversation
    const { isHeard, close } = await tell(conversation, "stop", payload)
    close(true)
    if (isHeard) return
    const again = () => {
      if (conversations.get(conversation.id) !== conversation) return
      if (!conversation.isBusy && conversation.turn === turn) reportStop(conversation, payload, failures + 1)
    }
    setTimeout(again, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]).unref?.()
  }

  const turnIsOver = (conversation) => {
    if (!conversation.isBusy) return
    // A turn that was stopped or failed shows nothing about what the model has read.
    const told = reportStop(conversation, { is_interrupted: conversation.isBroken, ...conversation.failure })
    conversation.isBusy = conversation.isBroken = false
    conversation.failure = {}
    conversation.open.clear()
    if (conversation.isLeft) leave(conversation)
    else if (!isOneShot) told.then(() => listenFor(conversation))
  }

  // From the end of its first turn on: until then Harken does not know it as idle, and must not take it for that.
  const listenFor = (conversation) => {
    if (conversations.get(conversation.id) !== conversation) return
    conversation.stopListening ??= listen(directory, conversation, (text) => wake(conversation, text))
  }

  const events = {
    "session.created": ({ info }) => children.set(info.id, Boolean(info.parentID)),
    "session.deleted": ({ info }) => {
      const conversation = conversations.get(info.id)
      if (conversation) leave(conversation)
      children.delete(info.id)
    },
    "permission.asked": (request) => {
      onAsked(request).catch(() => {})
      return waits(request, request.permission)
    },
    "permission.replied": (reply) => {
      calledOff(reply.requestID, true)
      answered(reply)
    },
    "question.asked": (request) => {
      onAsked(request).catch(() => {})
      return waits(request, request.questions?.[0]?.question ?? "")
    },
    "question.replied": (reply) => {
      calledOff(reply.requestID, true)
      answered(reply)
    },
    "question.rejected": (reply) => {
      calledOff(reply.requestID, true)
      answered(reply)
    },
    "session.status": ({ sessionID, status }) => {
      const conversation = conversations.get(sessionID)
      if (!conversation) return
      if (status.type === "idle") turnIsOver(conversation)
      else conversation.isBusy = true
    },
    "session.error": ({ sessionID, error }) => {
      const conversation = conversations.get(sessionID)
      if (!conversation) return
      conversation.isBroken = true
      if (error?.name !== STOPPED) conversation.failure = failureOf(error)
    },
    "message.updated": ({ info }) => {
      const conversation = conversations.get(info.sessionID)
      // One message for each model step, with rising ids; earlier ones are still changed now and then.
      if (conversation && info.role === "assistant" && info.id > conversation.step) conversation.step = info.id
    },
  }

  return {
    event: safely(({ event }) => events[event.type]?.(event.properties)),

    "chat.message": safely(async ({ sessionID, variant }, { message, parts }) => {
      if (await isChild(sessionID)) return
      const conversation = enter(sessionID)
      const { providerID, modelID } = message.model ?? {}
      conversation.choice = { agent: message.agent, model: modelID && { providerID, modelID }, variant }
      conversation.isLeft = false
      conversation.asked = conversation.opened = conversation.step
      // What comes in the middle of a turn joins it.
      if (!conversation.isBusy) Object.assign(conversation, { turn: message.id, isBroken: false, failure: {} })
      if (isTerminal) await leaveOthers(conversation)
      const typed = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      const prompt = typed.join("\n").slice(0, MAX_PROMPT)
      const { text, close } = await tell(conversation, "prompt", { prompt })
      const last = parts.at(-1)
      if (text && last) parts.push({ ...idsAfter(last), type: "text", text, synthetic: true })
      close(Boolean(last))
    }),

    "tool.execute.after": safely(async ({ sessionID, tool }, output) => {
      const results = deliveries(tool, output)
      if (!results.length && !bellRings()) return
      const conversation = conversations.get(sessionID)
      // After Esc the tool that was stopped comes by here too; no model waits for its result.
      if (!conversation?.isBusy || conversation.isBroken) return
      // A prompt in the middle of this step brought what waits; the end of the step does not show that it was read.
      if (conversation.step === conversation.opened && !results.length) return
      const is_step = conversation.asked !== conversation.step && conversation.step !== conversation.opened
      conversation.asked = conversation.step
      const { text, close } = await tell(conversation, "tool", { tool, is_step, results })
      close(!text || place(output, text))
    }),

    dispose: safely(() => {
      for (const id of [...asking.keys()]) calledOff(id, false)
      return bounded(Promise.all([...conversations.values()].map(leave)), ASK_MS)
    }),
  }
}
