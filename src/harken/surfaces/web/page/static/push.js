// Notifications of this page, by the push service of the browser: switched on and off here, shown by push-worker.js. Only
// where the daemon offers them, which it says in the shell: `harken.pushKey`.
"use strict";

(() => {
  const { ask, decode, encode, pushKey, pushWorker } = harken;
  const button = document.querySelector("[data-push]"), TOLD = "push-told";
  if (!button || !pushKey || !navigator.serviceWorker || !window.PushManager || !window.Notification) return;

  const subscribed = async () => (await navigator.serviceWorker.getRegistration("/"))?.pushManager.getSubscription();
  const isOurs = (subscription) => encode(subscription.options.applicationServerKey ?? new ArrayBuffer()) === pushKey;

  function draw(isOn, label = isOn ? "Notifications on" : "Notify me here") {
    button.hidden = false;
    button.setAttribute("aria-pressed", String(isOn));
    button.querySelector("span").textContent = label;
  }

  async function tell(subscription) {
    const answer = await ask("/push", { method: "POST", body: JSON.stringify(subscription) });
    if (!answer.ok) throw new Error(answer.status);
    sessionStorage.setItem(TOLD, "1");
  }

  async function begin() {
    await navigator.serviceWorker.register(pushWorker, { scope: "/" });
    const registration = await navigator.serviceWorker.ready;
    const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: decode(pushKey) });
    try { await tell(subscription); } catch (error) { await subscription.unsubscribe(); throw error; }
  }

  async function end() {
    await (await subscribed())?.unsubscribe();
    sessionStorage.removeItem(TOLD);
    await ask("/push-off", { method: "POST" });
  }

  button.addEventListener("click", async () => {
    const isOn = button.getAttribute("aria-pressed") === "true";
    try {
      if (isOn) await end();
      else if (await Notification.requestPermission() !== "granted") return draw(false, "Not allowed in this browser");
      else await begin();
      draw(!isOn);
    } catch { draw(isOn, isOn ? "Still on: try again" : "Not possible here"); }
  });

  // Who signs out here leaves nothing that goes on; the daemon has forgotten it anyway.
  window.addEventListener("submit", (event) => {
    if (event.target.getAttribute("action") === "/sign-out") subscribed().then((each) => each?.unsubscribe()).catch(() => {});
  }, true);

  // The browser, or the daemon, may have another key or address than when it began.
  async function look() {
    const subscription = await subscribed();
    draw(Boolean(subscription));
    if (!subscription || Notification.permission !== "granted") return;
    if (!isOurs(subscription)) { await subscription.unsubscribe(); await begin(); }
    else if (!sessionStorage.getItem(TOLD)) await tell(subscription);
  }

  look().catch(() => draw(false));
})();
