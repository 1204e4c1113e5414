// Signs this browser in with the secret behind the # of a link. The secret is never sent: the page shows that it has it,
// the daemon shows the same, and gives the key of the session hidden under it. See surfaces/web/signin.py.
"use strict";

(() => {
  const { decode, encode, keyOf, tag } = harken;

  let last = 0; // of several links in this tab only the newest says or does anything

  function say(name) {
    for (const part of document.querySelectorAll("main")) part.hidden = part.id !== name;
  }

  async function enter(secret, isLast) {
    const key = await keyOf(decode(secret));
    const nonce = encode(crypto.getRandomValues(new Uint8Array(16))), { host } = location;
    const answer = await fetch(location.pathname, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link: await tag(key, "harken link 1"), nonce, proof: await tag(key, "harken page 1", nonce, host) }),
      credentials: "omit",
      redirect: "error",
    });
    if (!answer.ok) return isLast() && say("used");
    const told = await answer.json();
    if (told.proof !== await tag(key, "harken daemon 1", nonce, told.session, host, told.key)) return isLast() && say("stranger");
    const pad = decode(await tag(key, "harken key 1", nonce, told.session, host));
    await harken.keep(told.session, await keyOf(decode(told.key).map((each, place) => each ^ pad[place])));
    if (isLast()) location.replace("/");
  }

  async function begin() {
    const secret = location.hash.slice(1), mine = ++last, isLast = () => mine === last;
    history.replaceState(null, "", location.pathname); // it stays in no history
    say("");
    try {
      if (secret) await enter(secret, isLast); else if (await harken.own()) location.replace("/"); else say("used");
    } catch (error) {
      if (isLast()) say(error instanceof TypeError ? "away" : "used");
    }
  }

  // A second link in this tab changes only what is behind the #: nothing is loaded, however early it comes.
  window.addEventListener("hashchange", () => { if (location.hash.length > 1) begin(); });
  document.addEventListener("DOMContentLoaded", begin);
})();
