// How the page shows the daemon that it is signed in, and knows that it is the daemon who answers. The key stays in the
// browser, which lets nobody read it; each request carries a proof that is good for this request, this address and this
// run of the daemon, once. The same texts are made in surfaces/web/page_sessions.py. What does not come from the daemon is not
// shown. Loaded by the shell, before everything else: `harken.ask` is `fetch` with a proof.
"use strict";

(() => {
  const NAME = "harken", KEYS = "keys", OWN = "own", TRIES = 2, RENEWED_MS = 86400000;
  const NOTHING = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"; // the hash of an empty body
  const text = new TextEncoder();
  const HMAC = { name: "HMAC", hash: "SHA-256" };

  const encode = (data) => btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const decode = (letters) => Uint8Array.from(atob(letters.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  const keyOf = (data) => crypto.subtle.importKey("raw", data, HMAC, false, ["sign"]);
  const tag = async (key, ...parts) => encode(await crypto.subtle.sign("HMAC", key, text.encode(parts.join("\n"))));

  // The key ------------------------------------------------------------------------------------------------------------

  const settled = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });

  async function stored(mode, act) {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(KEYS);
    const base = await settled(opening);
    try {
      const transaction = base.transaction(KEYS, mode);
      // What was written is taken back when the page is left before it is committed, and a sign-in leaves at once.
      const committed = mode === "readonly" || new Promise((done, failed) => {
        transaction.oncomplete = done;
        transaction.onabort = () => failed(transaction.error);
      });
      const [result] = await Promise.all([settled(act(transaction.objectStore(KEYS))), committed]);
      return result;
    } finally { base.close(); }
  }

  let held = null; // what was read: the session and its key
  const own = () => held ||= stored("readonly", (keys) => keys.get(OWN)).catch(() => undefined);
  own(); // it takes a while
  const keep = (session, key, since = Date.now()) => {
    held = null;
    return stored("readwrite", (keys) => keys.put({ session, key, since }, OWN));
  };
  const forget = () => { held = null; return stored("readwrite", (keys) => keys.delete(OWN)); };

  // Asking -------------------------------------------------------------------------------------------------------------

  class Stranger extends Error {}

  // Whether you are here: the daemon does not call you elsewhere then.
  const HERE_MS = 60000;
  let lastInput = -HERE_MS;
  for (const each of ["keydown", "pointerdown", "pointermove", "wheel"]) {
    addEventListener(each, () => { lastInput = performance.now(); }, { capture: true, passive: true });
  }
  const here = () => (document.hasFocus() && performance.now() - lastInput < HERE_MS ? { "Harken-Here": "1" } : {});

  let ticket = document.querySelector('meta[name="harken-ticket"]')?.content || "-", number = 0;
  const command = document.querySelector('meta[name="harken-command"]')?.content || "harken open"; // what signs in here

  async function bytesOf(body, headers) {
    if (body == null) return new Uint8Array();
    if (body instanceof FormData) body = new URLSearchParams(body);
    if (body instanceof URLSearchParams) headers["Content-Type"] = "application/x-www-form-urlencoded;charset=UTF-8";
    return text.encode(body.toString());
  }

  async function ask(url, options = {}) {
    const place = new URL(url, location.href), method = (options.method || "GET").toUpperCase();
    if (place.origin !== location.origin) throw new Stranger(place.origin);
    const headers = { ...options.headers }, data = await bytesOf(options.body, headers);
    const body = data.length ? encode(await crypto.subtle.digest("SHA-256", data)) : NOTHING;
    let who = await own();
    for (let left = TRIES; who && left; left--) {
      const mine = ticket, count = String(++number);
      const proof = await tag(who.key, "harken proof 1", who.session, mine, count, method, location.host, place.pathname + place.search, body);
      const answer = await fetch(place, {
        ...options,
        method,
        body: data.length ? data : undefined,
        headers: { ...headers, ...here(), "Harken-Proof": [who.session, mine, count, body, proof].join(" ") },
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
      const right = await tag(who.key, "harken answer 1", proof, String(answer.status));
      if (answer.headers.get("Harken-Answer") === right) return answer;
      const next = answer.headers.get("Harken-Ticket");
      if (answer.status !== 401 || !next) throw new Stranger(answer.status);
      if (ticket === mine) { ticket = next; number = 0; }
      held = null; // another tab may have signed in again, or renewed the key
      who = await own();
    }
    return new Response(null, { status: 401 }); // nothing of what came is shown: anybody could say it
  }

  // A part of a page as text; null where none comes, or breaks off on its way, or is refused.
  async function read(url) {
    const answer = await ask(url, { headers: { "HX-Request": "true" } }).catch(() => null);
    return answer?.ok ? answer.text().catch(() => null) : null;
  }

  // No key is used for long: a copy of the browser's files that somebody took is worth less each day.
  async function renew() {
    const who = await own();
    if (!who || Date.now() - who.since < RENEWED_MS) return;
    await navigator.locks.request("harken-renew", { ifAvailable: true }, async (lock) => {
      const { session, key, since } = lock ? await stored("readonly", (keys) => keys.get(OWN)) : who;
      if (!lock || since !== who.since) return; // another tab does it, or has done it
      const nonce = encode(crypto.getRandomValues(new Uint8Array(16)));
      const answer = await ask("/renew-key", { method: "POST", body: JSON.stringify({ nonce }) });
      if (!answer.ok) return;
      const pad = decode(await tag(key, "harken next key 1", nonce)), hidden = decode((await answer.json()).key);
      await keep(session, await keyOf(hidden.map((each, place) => each ^ pad[place])));
    });
  }

  // A stream of events, as a browser would read it; yields also where it is when it is told nothing.
  async function* events(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", event = {};
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line) { yield event; event = {}; continue; }
        const colon = line.indexOf(":");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
      }
    }
  }

  // What htmx asks with: as much of an XMLHttpRequest as it uses, over `ask` ------------------------------------------

  class ProvenRequest extends EventTarget {
    upload = new EventTarget();
    timeout = 0;
    status = 0;
    response = "";
    responseURL = "";
    #ends = new AbortController();
    #headers = {};
    #answer = null;

    open(method, url) { this.method = method; this.url = url; }
    overrideMimeType() {}
    setRequestHeader(name, value) { this.#headers[name] = value; }
    getResponseHeader(name) { return this.#answer?.headers.get(name) ?? null; }
    getAllResponseHeaders() { return [...(this.#answer?.headers ?? [])].map(([name, value]) => `${name}: ${value}\r\n`).join(""); }
    get responseText() { return this.response; }
    abort() { this.#ends.abort(); }

    async send(body) {
      const signals = [this.#ends.signal, ...(this.timeout ? [AbortSignal.timeout(this.timeout)] : [])];
      this.#tell("loadstart");
      try {
        const options = { method: this.method, body, headers: this.#headers, signal: AbortSignal.any(signals) };
        this.#answer = await ask(this.url, options);
        this.response = await this.#answer.text();
        this.status = this.#answer.status;
        this.responseURL = this.#answer.url;
      } catch (error) {
        this.#answer = null;
        this.#tell(this.#ends.signal.aborted ? "abort" : error.name === "TimeoutError" ? "timeout" : "error");
        this.#tell("loadend");
        return;
      }
      this.#tell("load");
      this.#tell("loadend");
    }

    #tell(kind) {
      const event = new Event(kind);
      this[`on${kind}`]?.call(this, event);
      this.dispatchEvent(event);
    }
  }

  // A service worker that is here is of a program that had this address while Harken was away, unless it is the one that
  // shows notifications, where the daemon offers them.
  const pushKey = document.querySelector('meta[name="harken-push"]')?.content || "", pushWorker = "/push-worker.js";
  const isOurs = (each) => pushKey && [each.installing, each.waiting, each.active].every((it) => !it || it.scriptURL === location.origin + pushWorker);
  const dismiss = (isLeft = () => false) => navigator.serviceWorker?.getRegistrations()
    .then((all) => Promise.all(all.filter((each) => !isLeft(each)).map((each) => each.unregister()))).catch(() => {});
  dismiss(isOurs);

  window.XMLHttpRequest = ProvenRequest;
  window.harken = Object.freeze({ ask, command, decode, dismiss, encode, events, forget, keep, keyOf, own, pushKey, pushWorker, read, renew, Stranger, tag });
})();
