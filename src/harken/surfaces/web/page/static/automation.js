// Rules, actions and runs in an open page: how much time is left to answer, what waits, and what a run prints as it
// prints it. Everything comes from the server as HTML; without this file the pages show the same and are read again.
"use strict";

(() => {
  const SECOND_MS = 1000, RETRY_MS = 5000, PATIENCE_MS = 40000, NEAR_PX = 40;
  const page = document.body;
  const byId = (id) => document.getElementById(id);
  const ask = (url, signal) => harken.ask(url, { headers: { "HX-Request": "true" }, signal });

  // How much time is left: counted from what the server said, so that a clock that is wrong does not matter ----------

  const ends = new WeakMap();
  const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;

  function countDown() {
    for (const shown of document.querySelectorAll(".countdown[data-left]")) {
      if (!ends.has(shown)) ends.set(shown, Date.now() + Number(shown.dataset.left) * SECOND_MS);
      const left = Math.ceil((ends.get(shown) - Date.now()) / SECOND_MS);
      shown.textContent = left > 0 ? clock(left) : "expired";
      if (left <= 0) expire(shown.closest(".ask"));
    }
  }

  function expire(card) {
    if (!card || card.classList.contains("is-over")) return;
    card.classList.add("is-over");
    card.querySelectorAll("button").forEach((button) => { button.disabled = true; });
    say(`The time to answer ${card.id} is over.`);
  }

  // What waits for an answer, for those who do not see it -------------------------------------------------------------

  function say(text) {
    const news = byId("asked-news");
    if (news && news.textContent !== text) news.textContent = text;
  }

  let asked = Number(byId("panel")?.dataset.asked || 0);
  function hearAsked() {
    const now = byId("panel")?.dataset.asked;
    if (now === undefined || Number(now) === asked) return;
    asked = Number(now);
    say(asked ? `${asked} waiting for your answer` : "Nothing waits for your answer any more");
  }

  async function lookWhatWaits() {
    const strip = byId("asks");
    const answer = strip && await ask("/part/asks").catch(() => null);
    const html = answer?.ok ? await answer.text().catch(() => null) : null;
    // Set only when it is another: what is set is read aloud.
    if (html !== null && html.trim() !== strip.dataset.html) { strip.dataset.html = html.trim(); strip.innerHTML = html; }
  }

  // What a run prints -------------------------------------------------------------------------------------------------

  const output = byId("output");
  let waiting = null;

  function add(html) {
    const isAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < NEAR_PX;
    output.querySelector("ol").insertAdjacentHTML("beforeend", html);
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }

  async function readOn() {
    const answer = await ask(
      `/part/output/${encodeURIComponent(output.dataset.run)}?after=${output.dataset.next}`,
      AbortSignal.any([waiting.signal, AbortSignal.timeout(PATIENCE_MS)]),
    );
    if (!answer.ok) throw new Error(String(answer.status));
    add(await answer.text());
    output.dataset.next = answer.headers.get("Harken-Next");
    if (answer.headers.has("Harken-Over")) output.dataset.over = "";
  }

  async function follow() {
    if (!output || waiting || document.hidden) return;
    const mine = waiting = new AbortController();
    while (!("over" in output.dataset) && !mine.signal.aborted) {
      try { await readOn(); } catch { if (!mine.signal.aborted) await new Promise((done) => setTimeout(done, RETRY_MS)); }
    }
    if (waiting === mine) waiting = null;
  }

  function followIfSeen() {
    if (document.hidden) { waiting?.abort(); waiting = null; } else follow();
  }

  // What could not be done ---------------------------------------------------------------------------------------------

  function refuse({ detail }) {
    const told = byId("told");
    if (!told || detail.requestConfig?.verb !== "post") return;
    const line = document.createElement("p");
    line.className = "told is-problem";
    line.textContent = detail.xhr?.status === 401
      ? `Not done: you are signed out. In a terminal: ${harken.command}`
      : "No answer came, so it may not be done. Look whether it is, then try again.";
    told.replaceChildren(line);
  }

  // Events ------------------------------------------------------------------------------------------------------------

  page.addEventListener("htmx:afterSettle", ({ detail }) => {
    countDown();
    hearAsked();
    const told = byId("told");
    const isDone = detail.requestConfig?.verb === "post" && told?.textContent.trim();
    if (isDone && document.activeElement === page) told.focus(); // the button that had the focus is gone
  });
  for (const kind of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) page.addEventListener(kind, refuse);
  for (const kind of ["automation-changed", "message-changed"]) page.addEventListener(kind, lookWhatWaits);
  document.addEventListener("visibilitychange", followIfSeen);
  setInterval(countDown, SECOND_MS);
  if (byId("asks")) byId("asks").dataset.html = byId("asks").innerHTML.trim();
  if (output) output.scrollTop = output.scrollHeight;
  countDown();
  follow();
})();
