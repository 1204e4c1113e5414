// Signs this browser in with the secret behind the # of a link. The secret is never sent: the page shows that it has it,
// the daemon shows the same, and gives the key of the session hidden under it. See surfaces/web/signin.py.
"use strict";

(() => {
  const { decode, encode, keyOf, tag } = harken;

  function say(name) {
    document.getElementById(name).hidden = false;
  }

  async function begin() {
    const secret = location.hash.slice(1);
    history.replaceState(null, "", location.pathname); // it stays in no history
    const key = await keyOf(decode(secret));
    const nonce = encode(crypto.getRandomValues(new Uint8Array(16))), { host } = location;
    const answer = await fetch(location.pathname, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link: await tag(key, "harken link 1"), nonce, proof: await tag(key, "harken page 1", nonce, host) }),
      credentials: "omit",
      redirect: "error",
    });
    if (!answer.ok) return say("used");
    const told = await answer.json();
    if (told.proof !== await tag(key, "harken daemon 1", nonce, told.session, host, told.key)) return say("stranger");
    const pad = decode(await tag(key, "harken key 1", nonce, told.session, host));
    await harken.keep(told.session, await keyOf(decode(told.key).map((each, place) => each ^ pad[place])));
    location.replace("/");
  }

  // A second link in this tab changes only what is behind the #.
  window.addEventListener("hashchange", () => location.reload());
  document.addEventListener("DOMContentLoaded", () => begin().catch((error) => say(error instanceof TypeError ? "away" : "used")));
})();
