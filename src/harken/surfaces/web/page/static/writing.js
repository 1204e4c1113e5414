// What a person does in the page: write, answer, and get about by keys. Without it the forms still work.
"use strict";

(() => {
  const CHORD_MS = 1200, MAX_NOTED = 500;
  const page = document.body;
  const byId = (id) => document.getElementById(id);
  const form = byId("composer"), field = byId("text"), outlook = byId("outlook");
  const items = () => [...document.querySelectorAll(".item, .row")];
  const chosen = () => document.activeElement?.closest(".item, .row");

  // How much may still be written: told when it gets close. The daemon counts characters, a browser half of some.
  const CLOSE = 0.9;

  function tellRoom(writing) {
    const most = Number(writing?.dataset.most || 0), told = writing?.querySelector(".room");
    if (!most || !told) return;
    const text = writing.elements.text.value;
    const length = text.length <= most * CLOSE ? 0 : text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length || 0);
    told.hidden = length <= most * CLOSE;
    told.classList.toggle("is-over", length > most);
    told.textContent = told.hidden ? "" : `${length.toLocaleString("en")} of ${most.toLocaleString("en")} characters${length > most ? ": too long for a message" : ""}`;
  }

  document.addEventListener("input", (event) => tellRoom(event.target.closest("form[data-most]")));

  // The composer -----------------------------------------------------------------------------------------------------

  const draftName = `draft:${location.pathname}`;
  let isTold = false; // the line below the text says what was sent, or what went wrong: keep it until the text changes
  const noted = new Set(); // messages whose ledger changed: the stream may be faster than the answer to sending

  function saveDraft() {
    const { key, ref } = form.elements, quote = byId("replying").querySelector(".quoted").textContent;
    const draft = { text: field.value, key: key.value, ref: ref.value, quote };
    if (draft.text.trim()) sessionStorage.setItem(draftName, JSON.stringify(draft)); else sessionStorage.removeItem(draftName);
  }

  function restoreDraft() {
    const draft = JSON.parse(sessionStorage.getItem(draftName) || "null");
    if (!draft || field.value) return;
    field.value = draft.text;
    form.elements.key.value = draft.key;
    if (draft.ref) answer(draft.ref, draft.quote); // also where that message is not shown: an answer stays an answer
    grow();
  }

  function grow() {
    if (CSS.supports("field-sizing", "content")) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
  }

  async function foretell() {
    if (!form || form.hidden || isTold) return;
    const query = new URLSearchParams({ mailbox: form.elements.mailbox.value, ref: form.elements.ref.value });
    if (byId("priority").checked) query.set("priority", "high");
    const told = await harken.read(`/part/forecast?${query}`);
    if (told !== null && !isTold) outlook.innerHTML = told;
  }

  // What was sent is waiting, then offered, then seen: the line says what is true now.
  const sentId = () => (isTold && outlook?.querySelector("[data-message]")?.dataset.message) || "";

  let asked = 0;
  async function follow() {
    const id = sentId(), turn = ++asked;
    if (!id) return;
    const now = await harken.read(`/part/sent/${encodeURIComponent(id)}`);
    if (turn !== asked || sentId() !== id) return;
    if (now) outlook.innerHTML = now; else { isTold = false; foretell(); }
    page.dispatchEvent(new CustomEvent("times-came"));
  }

  function hearLedger({ detail: id }) {
    if (noted.size >= MAX_NOTED) noted.clear();
    noted.add(id);
    if (!id || id === sentId()) follow(); // without an id it is one of many
  }

  // A task that is done takes no more mail: the field goes, what was written stays to be read.
  async function lookWhetherOpen() {
    const { mailbox } = form.elements;
    if ("onlyReplies" in form.dataset || !mailbox.value.startsWith("task:")) return;
    const made = document.createElement("template");
    made.innerHTML = await harken.read(`/part/why-not?${new URLSearchParams({ mailbox: mailbox.value })}`) || "";
    const reason = made.content.getElementById("why-not");
    if (!reason || byId("why-not")) return;
    byId("unsent").before(reason);
    form.dataset.onlyReplies = "";
    arrange();
  }

  function arrange() {
    const isClosed = "onlyReplies" in form.dataset && !form.elements.ref.value;
    form.hidden = isClosed;
    if (byId("why-not")) byId("why-not").hidden = !isClosed;
    byId("unsent").hidden = !isClosed || !field.value.trim();
    byId("unsent-text").value = field.value;
  }

  function replyTo(item) {
    if (!form || !item) return;
    const button = item.querySelector("[data-reply]");
    if (button) answer(button.dataset.reply, `${item.dataset.from}: ${item.dataset.said}`);
    if (!form.hidden) field.focus();
    if (button) saveDraft(); else failed("That is your own message. Write a new one here.");
  }

  function answer(ref, quote) {
    form.elements.ref.value = ref;
    byId("replying").hidden = false;
    byId("replying").querySelector(".quoted").textContent = quote;
    arrange();
    isTold = false;
    foretell();
  }

  function replyToNobody() {
    form.elements.ref.value = "";
    byId("replying").hidden = true;
    arrange();
    saveDraft();
    foretell();
  }

  function failed(text) {
    isTold = true;
    const problem = document.createElement("span");
    problem.className = "problem";
    problem.textContent = text;
    outlook.replaceChildren(problem);
  }

  function startComposer() {
    if (!form) return;
    restoreDraft();
    if (location.hash === "#reply") replyTo(items().findLast((item) => item.querySelector("[data-reply]")));
    tellRoom(form);
    arrange();
    field.addEventListener("input", () => { grow(); saveDraft(); if (isTold) { isTold = false; foretell(); } });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      if (field.value.trim()) form.requestSubmit();
    });
    byId("priority").addEventListener("change", () => { isTold = false; foretell(); });
    form.addEventListener("htmx:beforeRequest", () => { field.readOnly = true; });
    form.addEventListener("htmx:afterRequest", () => { field.readOnly = false; });
    form.addEventListener("htmx:sendError", () => failed("Not sent: Harken does not answer. Your text is kept; send it again."));
    form.addEventListener("htmx:timeout", () => failed("Not sent yet: no answer came. Your text is kept; sent again it is stored once."));
    form.addEventListener("sent", () => {
      field.value = "";
      tellRoom(form);
      byId("priority").checked = false;
      sessionStorage.removeItem(draftName);
      if (form.elements.ref.value) replyToNobody();
      if (form.hidden) byId("why-not").textContent = "Answered. It goes where the message came from.";
      isTold = true;
      grow();
      if (noted.has(sentId())) follow();
    });
    outlook.addEventListener("htmx:beforeSwap", showRefusal);
    for (const kind of ["session-changed", "task-changed"]) {
      page.addEventListener(kind, foretell);
      page.addEventListener(kind, follow);
    }
    page.addEventListener("ledger-changed", hearLedger);
    page.addEventListener("task-changed", lookWhetherOpen);
  }

  function showRefusal(event) {
    const { xhr } = event.detail;
    if (xhr.status < 400) return;
    isTold = true;
    event.detail.shouldSwap = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/html");
    if (event.detail.shouldSwap) return;
    if (xhr.status === 413) return failed("Not sent: it is too long for a file from here, too. Save it in the task's folder, and name the file.");
    failed(xhr.status === 401 ? `Not sent: you are signed out. In a terminal: ${harken.command}` : "Not sent. Try again.");
  }

  // Keys and clicks --------------------------------------------------------------------------------------------------

  const PLACES = { i: "/conversations", m: "/m/inbox", n: "/needs", w: "/waiting", t: "/tasks", s: "/sessions", p: "/pulse", r: "/rules", u: "/runs" };
  let chordAt = 0;

  function step(by) {
    const all = items(), at = all.indexOf(chosen());
    const next = at < 0 ? all.at(byId("rows") ? 0 : -1) : all[Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  function toggleLedger() {
    const details = chosen()?.querySelector(".ledger");
    if (details) details.open = !details.open;
  }

  const KEYS = {
    "j": () => step(1),
    "k": () => step(-1),
    "o": toggleLedger,
    "r": () => replyTo(chosen() || items().findLast((item) => item.querySelector("[data-reply]"))),
    "c": () => field?.focus(),
    "/": () => byId("find").focus(),
    "?": () => byId("keys").showModal(),
    "g": () => { chordAt = Date.now(); },
  };

  function leave(event) {
    if (location.hash === "#sidebar") location.hash = "#main";
    else if (form?.contains(event.target) && form.elements.ref.value) replyToNobody();
    else if (event.target !== page) event.target.blur();
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.altKey) {
      if (event.code === "KeyH" && form && !form.hidden) { event.preventDefault(); byId("priority").click(); }
      return;
    }
    if (event.key === "Escape") return leave(event);
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const isItem = event.target.matches(".item, .row");
    if (Date.now() - chordAt < CHORD_MS && PLACES[event.key]) { location.href = PLACES[event.key]; return; }
    const act = KEYS[event.key] || (isItem && { ArrowDown: KEYS.j, ArrowUp: KEYS.k, ...(event.target.matches(".item") && { Enter: KEYS.o }) }[event.key]);
    if (act) { event.preventDefault(); act(); }
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys]")) byId("keys").showModal();
    else if (event.target.closest("[data-no-reply]")) replyToNobody();
    else if (event.target.closest("[data-reply]")) replyTo(event.target.closest(".item"));
  });

  function followDrawer() {
    const isOpen = location.hash === "#sidebar" && matchMedia("(max-width: 48rem)").matches;
    byId("main").inert = isOpen;
    if (isOpen) byId("sidebar").focus();
  }
  window.addEventListener("hashchange", followDrawer);

  document.documentElement.classList.add("has-script");
  followDrawer();
  startComposer();
})();
