// What the page does by itself: it follows the stream, adds what is new, and writes times in the person's zone.
// Everything it shows comes from the server as HTML. Writing and keys are in writing.js, which hears of changes here
// by events on the body: message-changed, conversation-changed, task-changed, session-changed, automation-changed (rules, actions, runs), and
// ledger-changed with a message's id.
"use strict";

(() => {
  const COALESCE_MS = 300, RETRY_MS = 5000, FIRST_RETRY_MS = 500, LONGEST_RETRY_MS = 10000, NEAR_PX = 80, PAGE = 50, AWAY_AFTER = 2;
  const page = document.body;
  const byId = (id) => document.getElementById(id);
  const list = byId("items"), scroll = byId("scroll"), news = byId("news");
  const ask = (url, options = {}) => harken.ask(url, { ...options, headers: { "HX-Request": "true" } });

  // Times and days -----------------------------------------------------------------------------------------------

  const sameDay = (a, b) => a.toDateString() === b.toDateString();
  const dayName = (at) => {
    const today = new Date(), yesterday = new Date(today.getTime() - 86400000);
    if (sameDay(at, today)) return "Today";
    if (sameDay(at, yesterday)) return "Yesterday";
    const year = at.getFullYear() === today.getFullYear() ? undefined : "numeric";
    return at.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year });
  };
  const STYLES = {
    short: (at) => sameDay(at, new Date()) ? STYLES.time(at) : at.toLocaleDateString([], { day: "numeric", month: "short" }),
    time: (at) => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }),
    day: dayName,
    full: (at) => at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }),
  };

  function localiseTimes(root = document) {
    for (const element of root.querySelectorAll("time[data-style]:not([title])")) {
      const at = new Date(element.dateTime);
      element.textContent = STYLES[element.dataset.style](at);
      element.title = STYLES.full(at);
    }
  }

  function drawDays() {
    if (!list) return;
    list.querySelectorAll(".day").forEach((day) => day.remove());
    let last = null;
    for (const item of list.querySelectorAll(".item")) {
      const at = new Date(item.dataset.at);
      if (!last || !sameDay(at, last)) {
        const day = document.createElement("li");
        day.className = "day";
        day.textContent = dayName(at);
        item.before(day);
      }
      last = at;
    }
  }

  function decorate() {
    drawDays();
    localiseTimes();
    const mark = document.querySelector(".place.is-unread") ? "• " : "";
    const asked = document.querySelector("#place-needs .badge")?.textContent || "";
    document.title = (asked && `(${asked}) `) + mark + document.title.replace(/^(\(\d+\+?\) )?(• )?/, "");
    const icon = document.querySelector("link[rel=icon]");
    icon.dataset.calm ||= icon.href;
    icon.href = asked ? icon.dataset.asking : icon.dataset.calm;
    navigator.setAppBadge?.(Number.parseInt(asked || "0", 10)).catch(() => {});
  }

  // Scrolling: at the bottom it stays there, elsewhere nothing moves -----------------------------------------------

  let isAtEnd = false;
  const toEnd = () => { if (scroll) { scroll.scrollTop = scroll.scrollHeight; isAtEnd = true; hideNews(); } };
  const hideNews = () => { if (news && !news.hidden) { news.hidden = true; news.dataset.count = "0"; } };

  function followScroll() {
    if (!scroll || !list) return;
    scroll.addEventListener("scroll", () => {
      isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_PX;
      if (isAtEnd && !news.hidden) { hideNews(); markSeen(); }
    }, { passive: true });
    const observer = new ResizeObserver(() => { if (isAtEnd) scroll.scrollTop = scroll.scrollHeight; });
    observer.observe(scroll);
    observer.observe(list);
    news.addEventListener("click", () => { toEnd(); markSeen(); });
    const named = location.hash.startsWith("#m-") && byId(location.hash.slice(1));
    if (named) { named.scrollIntoView({ block: "center" }); named.focus({ preventScroll: true }); } else toEnd();
  }

  // What is new -----------------------------------------------------------------------------------------------------

  let isFetching = false, isMore = false, seenFrom = Infinity, seenUpTo = 0;

  const openDetails = () => [...document.querySelectorAll("details[open][id]")].map((details) => details.id);
  const reopen = (id) => byId(id)?.setAttribute("open", "");

  function keepingOpen(change) {
    const focus = document.activeElement?.id;
    const open = openDetails();
    change();
    open.forEach(reopen);
    if (focus && document.activeElement === document.body) byId(focus)?.focus({ preventScroll: true });
  }

  async function fetchNew() {
    if (!list || !list.dataset.newest) return;
    if (isFetching) { isMore = true; return; }
    isFetching = true;
    const before = Number(list.dataset.newest);
    const answer = await ask(`/part/items?${page.dataset.query}&after=${before}`).catch(() => null);
    const html = answer?.ok ? await answer.text().catch(() => null) : null;
    if (html !== null) addNew(html, answer.headers.get("Harken-Newest"));
    isMore ||= Number(list.dataset.newest) - before >= PAGE;
    isFetching = false;
    if (isLost(answer) || (answer.ok && html === null)) { hasNews = true; tryLater(); return; }
    if (isMore) { isMore = false; fetchNew(); }
  }

  // The stream does not tell again what it has told: what could not be fetched then is asked for later.
  const isLost = (answer) => !answer || answer.status >= 500;
  const tryLater = () => { timer ||= setTimeout(flush, RETRY_MS); };

  function addNew(html, newest) {
    const made = document.createElement("template");
    made.innerHTML = html;
    const items = [...made.content.querySelectorAll(".item")].filter((item) => !byId(item.id));
    if (newest) list.dataset.newest = newest;
    if (!items.length) return;
    document.querySelector(".timeline .empty")?.remove();
    list.append(...items);
    items.forEach((item) => htmx.process(item));
    decorate();
    const last = items.at(-1).dataset;
    byId("announce").textContent = items.length > 1 ? `${items.length} new messages` : `${last.from}: ${last.said}`;
    if (isAtEnd) { toEnd(); markSeen(); } else showNews(items.length);
  }

  function showNews(count) {
    const all = Number(news.dataset.count || 0) + count;
    news.dataset.count = all;
    news.querySelector("span").textContent = all === 1 ? "1 new message" : `${all} new messages`;
    news.hidden = false;
  }

  async function refreshItem(id) {
    const answer = await ask(`/part/item/${encodeURIComponent(id)}`).catch(() => null);
    const html = answer?.ok ? await answer.text().catch(() => null) : null;
    if (isLost(answer) || (answer.ok && html === null)) { stale.add(id); tryLater(); }
    if (html === null) return;
    const made = document.createElement("template");
    made.innerHTML = html;
    const item = made.content.querySelector(".item"), shown = byId(id);
    if (!shown) return;
    for (const whole of shown.querySelectorAll(".text[data-whole]")) { // what the person asked to see stays
      made.content.getElementById(whole.id)?.replaceWith(whole);
    }
    keepingOpen(() => shown.replaceWith(item));
    htmx.process(item);
    localiseTimes(item);
  }

  // A decision about one sender is about all that they said.
  page.addEventListener("acted", () => document.querySelectorAll(".item[data-unknown]").forEach((each) => refreshItem(each.id)));

  // Where what is shown begins: what is before it was on no screen, and stays new.
  const shownFrom = () => Number(list.querySelector(":scope > .older")?.dataset.before || 0);
  const shownUpTo = () => Number(list.dataset.newest || list.dataset.last);

  function markSeen(upTo = list ? shownUpTo() : 0) {
    if (document.hidden || !upTo) return;
    const since = shownFrom();
    if (upTo <= seenUpTo && since >= seenFrom) return;
    seenUpTo = upTo;
    seenFrom = since;
    const body = new URLSearchParams(page.dataset.query);
    body.set("since", since);
    body.set("up_to", upTo);
    ask("/do/seen", { method: "POST", body }).catch(() => { seenUpTo = 0; seenFrom = Infinity; });
  }

  function olderCame() {
    markSeen(news.hidden ? shownUpTo() : seenUpTo);
    if (!shownFrom() && list.dataset.newest) byId("all-seen")?.remove();
  }

  // The stream -------------------------------------------------------------------------------------------------------

  const changed = new Set(), stale = new Set();
  let stream = null, last = page.dataset.after, timer = 0, hasNews = false, wasLost = false, retry = 0, failures = 0;

  function soon(kind) {
    changed.add(kind);
    timer ||= setTimeout(flush, COALESCE_MS);
  }

  function flush() {
    timer = 0;
    const kinds = [...changed], ids = [...stale].filter(byId);
    changed.clear();
    stale.clear();
    kinds.forEach((kind) => page.dispatchEvent(new CustomEvent(kind)));
    ids.forEach(refreshItem);
    if (hasNews) { hasNews = false; fetchNew(); }
  }

  const isHere = (data) => page.dataset.thread ? data.source === page.dataset.source && data.thread === page.dataset.thread : page.dataset.mailbox
    ? data.mailbox === page.dataset.mailbox
    : Boolean(page.dataset.source) && data.source === page.dataset.source && data.channel === page.dataset.channel;

  const TOLD = {
    "message.queued": (data) => {
      if (isHere(data)) hasNews = true;
      if (data.refers_to) stale.add(data.refers_to);
      soon("message-changed");
    },
    "message.changed": (data) => {
      if (data.message_id && data.consumer !== "watch") stale.add(data.message_id);
      if (data.consumer !== "watch") page.dispatchEvent(new CustomEvent("ledger-changed", { detail: data.message_id }));
      soon("message-changed");
    },
    "question.changed": (data) => { stale.add(data.message_id); soon("message-changed"); },
    "conversation.changed": () => soon("conversation-changed"),
    "approval.changed": () => soon("approval-changed"),
    "task.changed": () => soon("task-changed"),
    "session.changed": () => soon("session-changed"),
    "reset": () => location.reload(),
  };
  for (const name of ["message.judged", "action.changed", "run.changed", "rules.changed"]) TOLD[name] = () => soon("automation-changed");
  for (const name of ["message.offered", "message.seen", "message.answered"]) TOLD[name] = TOLD["message.changed"];

  async function connect() {
    if (stream || document.hidden) return;
    clearTimeout(retry);
    const mine = stream = new AbortController();
    let trouble = "";
    try {
      const answer = await ask(`/events?after=${last}`, { signal: mine.signal });
      if (answer.status === 401) trouble = `You are signed out. In a terminal: ${harken.command}`;
      if (answer.ok) await hear(answer);
    } catch (error) {
      if (error instanceof harken.Stranger) trouble = `Another program answers at this address. In a terminal: ${harken.command}`;
    }
    if (stream !== mine) return; // it was we who hung up
    stream = null;
    wasLost = true;
    const isAway = failures >= AWAY_AFTER; // a daemon that is only restarted is back by then
    tell(trouble || (isAway ? "Harken does not answer; what you see is from before. In a terminal: harken up" : "Not connected. Trying again…"));
    retry = setTimeout(connect, Math.min(FIRST_RETRY_MS * 2 ** failures++, LONGEST_RETRY_MS) * (1 + Math.random() / 4));
  }

  async function hear(answer) {
    failures = 0;
    tell("");
    if (wasLost) catchUp();
    for await (const { id, event, data } of harken.events(answer)) {
      last = id || last;
      if (data) TOLD[event]?.(JSON.parse(data));
    }
  }

  // What was told just before the connection was lost may have been asked for in vain.
  function catchUp() {
    wasLost = false;
    hasNews = true;
    ["message-changed", "task-changed", "session-changed", "automation-changed", "conversation-changed"].forEach(soon);
  }

  function disconnect() { stream?.abort(); stream = null; }

  page.addEventListener("not-sent", (event) => tell(event.detail));

  function tell(text) {
    const line = byId("connection");
    if (line.textContent !== text) line.textContent = text;
    line.hidden = !text;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(); else { connect(); markSeenIfAtEnd(); }
  });
  const markSeenIfAtEnd = () => { if (isAtEnd || !news || news.hidden) markSeen(); };
  window.addEventListener("pageshow", (event) => { if (event.persisted) { disconnect(); connect(); } });

  // htmx: what was open stays open, and what is read does not move when older messages come above it -----------------

  let open = [], fromEnd = null;
  page.addEventListener("htmx:beforeSwap", (event) => {
    open = openDetails();
    fromEnd = event.detail.target.matches(".older") && scroll ? scroll.scrollHeight - scroll.scrollTop : null;
  });
  page.addEventListener("htmx:afterSettle", () => {
    open.forEach(reopen);
    decorate();
    if (fromEnd !== null) { scroll.scrollTop = scroll.scrollHeight - fromEnd; fromEnd = null; olderCame(); }
  });
  page.addEventListener("times-came", () => localiseTimes());
  page.addEventListener("sent", () => { toEnd(); fetchNew(); });

  decorate();
  followScroll();
  markSeenIfAtEnd();
  connect();
})();
