// Writing to tasks where they stand side by side, and an address for every search. Without this file the forms are
// plain forms. A text stays in its field, also over a reload, until the daemon has accepted it; sent again it has the
// same key and is stored once.
"use strict";

(() => {
  const PATIENCE_MS = 20000;
  const boards = () => [...document.querySelectorAll("form[data-board]")];
  const ask = (url, fields) =>
    harken.ask(url, {
      method: "POST",
      headers: { "HX-Request": "true" },
      body: new URLSearchParams(fields),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });

  // Saying -----------------------------------------------------------------------------------------------------------

  const say = (form, ...parts) => form.querySelector(".board-said").replaceChildren(...parts);

  function refuse(form, text) {
    const line = document.createElement("span");
    line.className = "problem";
    line.textContent = text;
    say(form, line);
  }

  function take(form, answer) {
    const key = answer.querySelector("input[name=key]");
    key?.remove();
    say(form, ...answer.body.childNodes);
    if (!form.querySelector(".board-said .sent")) return;
    form.elements.text.value = "";
    form.querySelector(".room").hidden = true;
    form.elements.priority.checked = false;
    form.elements.key.value = key ? key.value : crypto.randomUUID();
    keep(form);
  }

  // What stands there about a message that was sent is true only until something happens to it.
  async function follow(form) {
    const told = form.querySelector(".board-said [data-message]")?.dataset.message;
    if (!told) return;
    const now = await harken.read(`/part/sent/${encodeURIComponent(told)}`);
    if (form.querySelector(".board-said [data-message]")?.dataset.message !== told) return;
    if (now === null) return say(form);
    say(form, ...new DOMParser().parseFromString(now, "text/html").body.childNodes);
    document.body.dispatchEvent(new CustomEvent("times-came"));
  }

  const followAll = () => boards().forEach(follow);

  async function send(form, button = null) {
    const field = form.elements.text;
    if (field.readOnly || !field.value.trim()) return;
    field.readOnly = true;
    try {
      const answer = await ask(form.action, new FormData(form, button));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (page.querySelector(".sent, .problem")) take(form, page);
      else refuse(form, "Not sent. Your text is kept: reload the page, then send it again.");
    } catch {
      refuse(form, "Not sent: Harken does not answer. Your text is kept; send it again.");
    }
    field.readOnly = false;
  }

  // Drafts -----------------------------------------------------------------------------------------------------------

  const draftOf = (form) => `draft:board:${form.elements.mailbox.value}`;

  function keep(form) {
    const draft = { text: form.elements.text.value, key: form.elements.key.value };
    if (draft.text.trim()) sessionStorage.setItem(draftOf(form), JSON.stringify(draft));
    else sessionStorage.removeItem(draftOf(form));
  }

  function restore(form) {
    const draft = JSON.parse(sessionStorage.getItem(draftOf(form)) || "null");
    if (!draft || form.elements.text.value) return;
    form.elements.text.value = draft.text;
    form.elements.key.value = draft.key;
  }

  // What is new: said to those who do not see it, and seen when it is in sight ----------------------------------------

  const mails = () => [...document.querySelectorAll(".board-mail > [data-newest]")];
  const shown = new Map(mails().map(({ dataset }) => [dataset.mailbox, Number(dataset.newest)]));
  const seen = new Map();

  function announce() {
    for (const { dataset } of mails()) {
      if (Number(dataset.newest) > shown.get(dataset.mailbox)) {
        document.getElementById("board-news").textContent = `New message in ${dataset.title}`;
      }
      shown.set(dataset.mailbox, Number(dataset.newest));
    }
    markSeen();
  }

  function markSeen() {
    if (document.hidden) return;
    for (const { dataset, parentElement } of mails()) {
      const place = parentElement.getBoundingClientRect(), upTo = Number(dataset.newest);
      const isInSight = place.top < innerHeight && place.bottom > 0 && place.left < innerWidth && place.right > 0;
      if (!isInSight || upTo <= (seen.get(dataset.mailbox) || 0)) continue;
      seen.set(dataset.mailbox, upTo);
      ask("/do/seen", { mailbox: dataset.mailbox, since: dataset.since, up_to: upTo }).catch(() => seen.delete(dataset.mailbox));
    }
  }

  // Searching --------------------------------------------------------------------------------------------------------

  function keepSearch({ detail }) {
    if (detail.successful && detail.elt.matches(".search-form")) history.replaceState(null, "", detail.pathInfo.finalRequestPath);
  }

  // What was typed or chosen before this page could listen has not been looked for yet.
  function catchUp() {
    const form = document.querySelector(".search-form");
    const asked = new URLSearchParams(location.search);
    const isAsked = ([name, value]) => value === (asked.get(name) ?? "");
    if (form && ![...new FormData(form)].every(isAsked)) htmx.trigger(form, "submit");
  }

  // Events -----------------------------------------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-board]")) return;
    event.preventDefault();
    send(event.target, event.submitter);
  });

  document.addEventListener("keydown", (event) => {
    // An Enter that ends a composition (229 where the browser does not say so otherwise) is not meant for us.
    if (event.isComposing || event.keyCode === 229 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && !event.shiftKey && event.target.matches("form[data-board] textarea")) {
      event.preventDefault();
      send(event.target.form);
    } else if (event.key === "c" && !event.target.closest("input, textarea, select")) {
      event.preventDefault();
      boards()[0]?.elements.text.focus();
    }
  });

  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-board]");
    if (!form) return;
    say(form);
    keep(form);
  });

  for (const kind of ["message-changed", "task-changed", "session-changed"]) document.body.addEventListener(kind, followAll);
  document.addEventListener("page-ready", catchUp);
  document.addEventListener("visibilitychange", markSeen);
  document.addEventListener("scroll", markSeen, { capture: true, passive: true });
  document.body.addEventListener("htmx:afterSettle", announce);
  document.body.addEventListener("htmx:afterRequest", keepSearch);
  boards().forEach(restore);
  markSeen();
})();
