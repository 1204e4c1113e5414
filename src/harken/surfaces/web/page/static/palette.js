// The palette (Ctrl or Cmd and K): every place, task and channel, and what can be done here, found by typing a part of
// its name. What it offers comes from the daemon when it is opened; nothing is done before Enter.
"use strict";

(() => {
  const MAX = 12;
  const byId = (id) => document.getElementById(id);
  const dialog = byId("palette"), field = byId("palette-text"), list = byId("palette-list");
  let offered = [], shown = [], chosen = 0, loaded = Promise.resolve();

  // What the page itself can do: the buttons that are there, by their own words.
  function actions() {
    const buttons = [...document.querySelectorAll("#main [data-triage], #main .head button, #main .head a.button, #pause, #resume, [data-keys]")];
    const named = new Map();
    for (const button of buttons) {
      const name = (button.getAttribute("aria-label") || button.textContent).trim().replace(/\s+/g, " ");
      if (name && button.offsetParent !== null && !button.closest(".row")) named.set(name, () => button.click());
    }
    return [...named].map(([name, act]) => ({ name, note: "here", act }));
  }

  async function load() {
    const html = await harken.read("/part/palette");
    if (html === null) return;
    const found = new DOMParser().parseFromString(html, "text/html");
    offered = [...found.querySelectorAll("a")].map((link) => ({
      name: link.textContent.trim(), note: link.dataset.note, act: () => location.assign(link.getAttribute("href")),
    }));
    draw();
  }

  // Every word must be in it; what begins with the text comes first.
  function rank({ name, note }, text) {
    const whole = `${name} ${note}`.toLowerCase();
    if (!text.split(" ").every((word) => whole.includes(word))) return -1;
    return name.toLowerCase().startsWith(text) ? 0 : 1;
  }

  function draw() {
    const text = field.value.trim().toLowerCase();
    const fits = [...actions(), ...offered].map((each) => [rank(each, text), each]).filter(([place]) => place >= 0);
    shown = fits.sort(([one], [other]) => one - other).map(([, each]) => each).slice(0, MAX);
    if (text) shown.push({ name: `Search for “${field.value.trim()}”`, note: "messages", act: () => location.assign(`/search?q=${encodeURIComponent(field.value.trim())}`) });
    chosen = Math.min(chosen, Math.max(shown.length - 1, 0));
    list.replaceChildren(...shown.map((each, place) => {
      const line = document.createElement("li");
      line.id = `palette-${place}`;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", String(place === chosen));
      const note = Object.assign(document.createElement("span"), { className: "soft", textContent: each.note });
      line.append(Object.assign(document.createElement("bdi"), { textContent: each.name }), note);
      return line;
    }));
    if (shown.length) field.setAttribute("aria-activedescendant", `palette-${chosen}`); else field.removeAttribute("aria-activedescendant");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function open() {
    field.value = "";
    chosen = 0;
    dialog.showModal();
    draw();
    loaded = load();
  }

  function choose(place) {
    const each = shown[place];
    if (!each) return;
    dialog.close();
    each.act();
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (dialog.open) dialog.close(); else open();
    }
  });
  field.addEventListener("input", () => { chosen = 0; draw(); });
  field.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); chosen = Math.min(Math.max(chosen + by, 0), shown.length - 1); draw(); }
    if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); loaded.then(() => { if (dialog.open) choose(chosen); }); } // fast fingers mean what is still on its way
  });
  list.addEventListener("click", (event) => choose([...list.children].indexOf(event.target.closest("li"))));
  document.addEventListener("click", (event) => { if (event.target.closest("[data-palette]")) open(); });
})();
