// Shows the page of this address: asks for it with a proof, and puts what comes in place of the shell. Says so where
// nobody is signed in, nobody answers, or somebody else does. A plain form of the page is sent the same way.
"use strict";

(() => {
  const HTML = { Accept: "text/html" }, LIBRARY = "/htmx.min.js";
  const settled = (element) => new Promise((done) => { element.onload = element.onerror = done; });
  const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

  const parsedShell = new Promise((done) => document.addEventListener("DOMContentLoaded", done));

  async function say(name) {
    await parsedShell;
    document.getElementById(name).hidden = false;
  }

  async function show(made) {
    const scripts = [...made.querySelectorAll("script")].map((script) => script.getAttribute("src"));
    made.querySelectorAll("script").forEach((script) => script.remove());
    await parsedShell;
    const before = [...document.head.children], sheets = [...made.querySelectorAll("link[rel=stylesheet]")].map(settled);
    document.head.append(...made.head.children);
    await Promise.all(sheets); // nothing is shown, and nothing measured, without its style
    before.forEach((element) => element.remove());
    document.body.replaceWith(made.body);
    // The browser looked for what the address names when there was only the shell.
    if (location.hash) location.replace(location.hash);
    await run(scripts);
    window.addEventListener("submit", send); // last: what the page or htmx sends by itself is prevented when it comes here
    document.documentElement.dataset.ready = "";
    document.dispatchEvent(new CustomEvent("page-ready"));
    harken.renew().catch(() => {}); // the next page tries again
  }

  // In their order, but htmx last: it begins at once, and looks at what is in sight.
  async function run(scripts) {
    const inOrder = [...scripts].sort((one, other) => one.endsWith(LIBRARY) - other.endsWith(LIBRARY));
    const elements = inOrder.map((src) => Object.assign(document.createElement("script"), { src, async: false }));
    const loads = elements.map(settled);
    document.head.append(...elements);
    await Promise.all(loads);
  }

  async function send(event) {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post") return;
    event.preventDefault();
    const path = form.getAttribute("action"); // `form.action` may be a field of that name
    const button = event.submitter, body = new FormData(form, button);
    if (button?.getAttribute("aria-busy")) return;
    button?.setAttribute("aria-busy", "true");
    try {
      const answer = await harken.ask(path, { method: "POST", body, headers: HTML });
      if (answer.status === 401 && path !== "/sign-out") return notSent(form, button, `Not sent: you are signed out. In a terminal: ${harken.command}`);
      const next = path === "/sign-out" ? "/" : answer.headers.get("HX-Redirect");
      if (path === "/sign-out") await harken.forget();
      if (next) return location.assign(next);
      const main = (await parsed(answer)).getElementById("main");
      document.getElementById("main").replaceWith(main);
      htmx.process(main);
      document.body.dispatchEvent(new CustomEvent("times-came"));
      const told = document.getElementById("told"); // the button that had the focus is gone
      if (told?.textContent.trim()) told.focus(); else main.focus();
    } catch {
      notSent(form, button, "No answer came, so it may not be done. Try again.");
    }
  }

  // What was filled in stays, to be sent again.
  function notSent(form, button, detail) {
    button?.removeAttribute("aria-busy");
    form.dispatchEvent(new CustomEvent("not-sent", { bubbles: true, detail }));
  }

  // Only what is behind the # counts: the link is opened here, wherever it leads.
  parsedShell.then(() => document.getElementById("paste")?.addEventListener("submit", (event) => {
    event.preventDefault();
    const [, secret] = document.getElementById("link").value.trim().split("#");
    if (secret) location.assign(`/sign-in#${secret}`);
  }));

  async function begin() {
    try {
      const answer = await harken.ask(location.pathname + location.search, { headers: HTML });
      const next = answer.headers.get("HX-Redirect");
      if (next) location.replace(next); else if (answer.status === 401) { say("signed-out"); harken.dismiss(); } else await show(await parsed(answer));
    } catch (error) {
      say(error instanceof harken.Stranger ? "stranger" : "away");
    }
  }

  begin();
})();
