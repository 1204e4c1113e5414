// What a person does in the page: write, answer, and get about by keys. Without it the forms still work.
"use strict";

(() => {
  const CHORD_MS = 1200;
  const page = document.body;
  const byId = (id) => document.getElementById(id);
  const form = byId("composer"), field = byId("text"), outlook = byId("outlook");
  const items = () => [...document.querySelectorAll(".item")];
  const chosen = () => document.activeElement?.closest(".item");

  // The composer -----------------------------------------------------------------------------------------------------

  const draftName = `draft:${location.pathname}`;
  let isTold = false; // the line below the text says what was sent, or what went wrong: keep it until the text changes

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
    const told = await fetch(`/part/forecast?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (told?.ok && !isTold) outlook.innerHTML = await told.text();
  }

  function replyTo(item) {
    if (!form || !item) return;
    const button = item.querySelector("[data-reply]");
    if (button) answer(button.dataset.reply, `${item.dataset.from}: ${item.dataset.said}`);
    if (!form.hidden) field.focus();
    if (button) saveDraft(); else failed("That is your own message. Write a new one here.");
  }

  function answer(ref, quote) {
    form.hidden = false;
    form.elements.ref.value = ref;
    byId("replying").hidden = false;
    byId("replying").querySelector(".quoted").textContent = quote;
    if (byId("why-not")) byId("why-not").hidden = true;
    isTold = false;
    foretell();
  }

  function replyToNobody() {
    form.elements.ref.value = "";
    byId("replying").hidden = true;
    form.hidden = "onlyReplies" in form.dataset;
    if (byId("why-not")) byId("why-not").hidden = false;
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
      byId("priority").checked = false;
      sessionStorage.removeItem(draftName);
      if (form.elements.ref.value) replyToNobody();
      if (form.hidden) byId("why-not").textContent = "Answered. It goes where the message came from.";
      isTold = true;
      grow();
    });
    outlook.addEventListener("htmx:beforeSwap", showRefusal);
    for (const kind of ["session-changed", "task-changed"]) page.addEventListener(kind, foretell);
  }

  function showRefusal(event) {
    const { xhr } = event.detail;
    if (xhr.status < 400) return;
    isTold = true;
    event.detail.shouldSwap = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/html");
    if (event.detail.shouldSwap) return;
    failed(xhr.status === 401 ? "Not sent: you are signed out. In a terminal: harken open" : "Not sent. Try again.");
  }

  // Keys and clicks --------------------------------------------------------------------------------------------------

  const PLACES = { i: "/m/inbox", t: "/tasks", s: "/sessions", p: "/pulse" };
  let chordAt = 0;

  function step(by) {
    const all = items(), at = all.indexOf(chosen());
    const next = at < 0 ? all.at(-1) : all[Math.min(Math.max(at + by, 0), all.length - 1)];
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
    if (event.isComposing || event.ctrlKey || event.metaKey || byId("keys").open) return;
    if (event.altKey) {
      if (event.code === "KeyH" && form && !form.hidden) { event.preventDefault(); byId("priority").click(); }
      return;
    }
    if (event.key === "Escape") return leave(event);
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const isItem = event.target.matches(".item");
    if (Date.now() - chordAt < CHORD_MS && PLACES[event.key]) { location.href = PLACES[event.key]; return; }
    const act = KEYS[event.key] || (isItem && { ArrowDown: KEYS.j, ArrowUp: KEYS.k, Enter: KEYS.o }[event.key]);
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
