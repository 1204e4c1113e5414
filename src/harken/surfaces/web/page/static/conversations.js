// The list of conversations by key and pointer: done, put off, unread, several at once, and the undo of each. The rows
// come from the server; this file only says which of them are meant.
"use strict";

(() => {
  const TOAST_MS = 12000, CHORD_MS = 1200, LONGEST_TIMER_MS = 2147000000, HOUR_MS = 3600000, SETTLE_MS = 600, SUNDAY = 0;
  const page = document.body;
  const byId = (id) => document.getElementById(id);
  const list = byId("rows"), toast = byId("toast");
  const all = () => [...document.querySelectorAll("#rows > .row")];
  const ask = (url, fields) => harken.ask(url, {
    method: fields ? "POST" : "GET", headers: { "HX-Request": "true" }, ...(fields && { body: new URLSearchParams(fields) }),
  });

  // What is meant: those that are selected, else the one with the focus, else the conversation that is open ---------

  const checked = () => all().filter((row) => row.querySelector(".row-check").checked);
  const focused = () => document.activeElement?.closest(".row");
  function meant(row = focused()) {
    const some = checked();
    if (some.length) return some.map((each) => each.dataset.ref);
    if (row) return [row.dataset.ref];
    return page.dataset.conversation ? [lastShown()?.id || page.dataset.conversation] : [];
  }

  // What is said while the conversation is open is added below: what is done covers what can be read here, and no more.
  const lastShown = () => [...document.querySelectorAll("#main .item[data-seq]:not([data-task])")].at(-1);

  // The toast: what was done, and its undo; it outlives the way back to the list --------------------------------------

  let hiding = 0;
  function show(html) {
    toast.innerHTML = html;
    toast.hidden = false;
    page.dispatchEvent(new CustomEvent("times-came"));
    clearTimeout(hiding);
    hiding = setTimeout(() => { toast.hidden = true; }, TOAST_MS);
  }

  function problem(text) {
    const line = document.createElement("span");
    line.className = "problem";
    line.textContent = text;
    show("");
    toast.replaceChildren(line);
  }

  async function tell(answer) {
    const type = answer.headers.get("Content-Type") || "";
    if (!type.startsWith("text/html")) return problem(answer.status === 401 ? `You are signed out. In a terminal: ${harken.command}` : "That was not done. Try again.");
    show(await answer.text());
  }

  // What is shown elsewhere of what was done is looked at again.
  const acted = () => { page.dispatchEvent(new CustomEvent("acted")); refresh(); };

  // One after the other, in the order of the keys: each answer says how what it did is undone.
  let doing = Promise.resolve();
  const act = (url, fields) => (doing = doing.then(() => post(url, fields)));

  async function post(url, fields) {
    try {
      const answer = await ask(url, fields);
      await tell(answer);
      return answer.ok;
    } catch {
      problem("Harken does not answer, so nothing was done. Try again.");
      return false;
    }
  }

  const leaving = new Set();
  async function triage(what, meantRefs, more = {}) {
    const refs = meantRefs.filter((ref) => !leaving.has(ref));
    if (!refs.length) return;
    if (what === "snooze" && !more.until) return openSnooze(refs);
    const leaves = what !== "unread" && what !== "read", before = focused(), after = next(refs);
    if (leaves) refs.forEach((ref) => leaving.add(ref));
    if (leaves && before) byId(after)?.focus({ preventScroll: true }); // the next key is meant for what is left
    const isDone = await act("/do/triage", { what, refs: refs.join(","), ...more });
    refs.forEach((ref) => leaving.delete(ref));
    if (!isDone) { if (focused()?.id === after) before?.focus({ preventScroll: true }); return; }
    if (page.dataset.conversation) {
      sessionStorage.setItem("toast", toast.innerHTML);
      location.assign("/conversations");
      return;
    }
    if (leaves && !(focused() && before)) await refresh(after);
    else await refresh();
  }

  // Where the focus goes when rows leave: to the row that follows the last of them.
  function next(refs) {
    const rows = all(), last = rows.findLastIndex((row) => refs.includes(row.dataset.ref));
    const left = [...rows.slice(last + 1), ...rows.slice(0, Math.max(last, 0)).reverse()];
    return left.find((row) => !refs.includes(row.dataset.ref) && !leaving.has(row.dataset.ref))?.id;
  }

  async function undo() {
    await doing;
    const form = toast.hidden ? null : toast.querySelector("form[data-undo]");
    if (form) act(form.getAttribute("action"), new FormData(form)).then(acted);
  }

  // The rows as they are now: what is selected and where the focus is stay ----------------------------------------

  let isLoading = false, isStale = false, due = 0;
  async function refresh(focus) {
    if (!list) return;
    if (isLoading) { isStale = true; return; }
    isLoading = true;
    const answer = await ask(`/part/conversations?view=${page.dataset.view}`).catch(() => null);
    const html = answer?.ok ? await answer.text().catch(() => null) : null;
    isLoading = false;
    if (html !== null) put(html, focus);
    if (isStale) { isStale = false; refresh(); }
  }

  // The focus is looked at now: it may have moved while the rows were asked for.
  function put(html, focus = focused()?.id) {
    const kept = new Set(checked().map((row) => row.dataset.ref)), known = new Set(all().map((row) => row.dataset.ref));
    list.innerHTML = html;
    htmx.process(list);
    for (const row of all()) row.querySelector(".row-check").checked = kept.has(row.dataset.ref);
    if (focus) byId(focus)?.focus({ preventScroll: true });
    const fresh = all().filter((row) => !known.has(row.dataset.ref));
    if (known.size && fresh.length) byId("announce").textContent = fresh.length > 1 ? `${fresh.length} conversations have something new` : `New: ${fresh[0].querySelector(".row-sender").textContent}`;
    page.dispatchEvent(new CustomEvent("times-came"));
    arrange();
  }

  function arrange() {
    const some = checked().length;
    byId("selection").hidden = !some;
    byId("selected").textContent = some ? `${some} selected` : "";
    const { open, snoozed, due: at } = list.querySelector(".rows-state")?.dataset || {};
    if (open !== undefined) { byId("count-open").textContent = open === "0" ? "" : open; byId("count-snoozed").textContent = snoozed === "0" ? "" : snoozed; }
    clearTimeout(due);
    if (at) due = setTimeout(() => refresh(), Math.min(Math.max(new Date(at) - Date.now(), 0) + 500, LONGEST_TIMER_MS));
  }

  // Putting off ------------------------------------------------------------------------------------------------------

  const dialog = byId("snooze");
  let putOff = [];
  function times() {
    const now = new Date(), day = (days, hour) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + days, hour);
    const found = [["In 3 hours", new Date(now.getTime() + 3 * HOUR_MS)]];
    if (now.getHours() < 6) found.push(["This morning", day(0, 9)]);
    if (now.getHours() < 17) found.push(["This evening", day(0, 18)]);
    found.push(["Tomorrow", day(1, 9)]);
    if (now.getDay() !== SUNDAY) found.push(["Next week", day((8 - now.getDay()) % 7 || 7, 9)]);
    return found;
  }

  function openSnooze(refs) {
    putOff = refs;
    dialog.querySelector(".snooze-times").replaceChildren(...times().map(([label, at]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "button";
      button.dataset.until = at.toISOString();
      button.append(label, Object.assign(document.createElement("span"), { className: "soft", textContent: at.toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" }) }));
      return button;
    }));
    dialog.showModal();
    dialog.querySelector("[data-until]").focus();
  }

  function snoozeUntil(at) {
    dialog.close();
    triage("snooze", putOff, { until: at });
  }

  // Density ----------------------------------------------------------------------------------------------------------

  const DENSITIES = ["Normal", "Compact", "Roomy"];
  function dress(density) {
    page.dataset.density = density.toLowerCase();
    if (!byId("density")) return;
    byId("density").querySelector(".density-name").textContent = density;
    byId("density").setAttribute("aria-label", `Density of the list: ${density}`);
  }

  // Events -----------------------------------------------------------------------------------------------------------

  const KEYS = {
    e: () => triage(page.dataset.view === "done" ? "reopen" : "done", meant()),
    s: () => triage("snooze", meant()),
    u: () => triage(focused() && !focused().classList.contains("is-unread") || !list ? "unread" : "read", meant()),
    x: () => { const box = focused()?.querySelector(".row-check"); if (box) { box.checked = !box.checked; arrange(); } },
    z: undo,
    o: () => focused() && location.assign(focused().dataset.href),
    r: () => focused() && location.assign(`${focused().dataset.href}#reply`),
  };

  let chordAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input:not(.row-check), textarea, select")) return;
    if (event.key === "g") { chordAt = Date.now(); return; }
    if (Date.now() - chordAt < CHORD_MS) return;
    const act = event.key === "Enter" && event.target.matches(".row") ? KEYS.o : KEYS[event.key];
    if (act && (list || page.dataset.conversation || event.key === "z")) { if (list || event.key !== "r" && event.key !== "o") event.preventDefault(); act(); }
  });

  // Fifty rows need their buttons one at a time.
  for (const kind of ["pointerover", "focusin"]) list?.addEventListener(kind, (event) => {
    const row = event.target.closest(".row");
    if (row && !row.querySelector(".row-actions")) row.querySelector(".row-at").before(byId("row-actions").content.cloneNode(true));
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-triage]"), row = event.target.closest(".row");
    if (button) return triage(button.dataset.triage, row ? [row.dataset.ref] : meant(null));
    if (event.target.closest("[data-allow]")) return act("/do/allow", { ref: event.target.closest("[data-allow]").dataset.allow }).then(acted);
    if (event.target.closest("[data-until]")) return snoozeUntil(event.target.closest("[data-until]").dataset.until);
    if (event.target.closest("[data-select-none]")) { checked().forEach((each) => { each.querySelector(".row-check").checked = false; }); return arrange(); }
    if (row && !event.target.closest("a, button, input")) location.assign(row.dataset.href);
  });

  // What moves under the pointer must not be pressed for what stood there before.
  let reasons = new Map();
  document.addEventListener("htmx:beforeSwap", () => {
    const fields = [...document.querySelectorAll(".approve input:is([name=reason], [type=text], :checked)")];
    reasons = new Map(fields.map((field) => [field.id, field.value]));
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const [id, reason] of reasons) {
      const field = byId(id);
      if (field?.type === "text") field.value = reason;
      else if (field && field.value === reason) field.checked = true;
    }
    const buttons = [...document.querySelectorAll(".approve button")];
    for (const button of buttons) button.disabled = true;
    setTimeout(() => { for (const button of buttons) button.disabled = false; }, SETTLE_MS);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form[data-undo]")) { event.preventDefault(); undo(); }
    if (event.target.matches("form[data-act]")) { event.preventDefault(); act(event.target.getAttribute("action"), new FormData(event.target, event.submitter)).then(acted); }
    if (event.target.matches(".snooze-own")) { event.preventDefault(); const at = new Date(byId("snooze-at").value); if (!Number.isNaN(at.getTime())) snoozeUntil(at.toISOString()); }
  });

  dress(localStorage.getItem("density") || DENSITIES[0]);
  const kept = sessionStorage.getItem("toast");
  if (kept) { sessionStorage.removeItem("toast"); show(kept); }
  if (!list) return;
  byId("density").addEventListener("click", () => {
    const now = DENSITIES.findIndex((name) => name.toLowerCase() === page.dataset.density);
    const chosen = DENSITIES[(now + 1) % DENSITIES.length];
    localStorage.setItem("density", chosen);
    dress(chosen);
  });
  list.addEventListener("change", arrange);
  for (const kind of ["message-changed", "conversation-changed"]) page.addEventListener(kind, () => refresh());
  arrange();
})();
