// Takes the place of a service worker that another program registered while it had this address, and goes. Harken has no
// worker of its own: a browser asks the address for new versions of it, whoever has the address then. Served by guard.py
// for every script that is asked for as a worker.
"use strict";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil((async () => {
  await self.clients.claim();
  await self.registration.unregister();
  await Promise.all((await caches.keys()).map((name) => caches.delete(name)));
  const open = await self.clients.matchAll({ type: "window" });
  await Promise.all(open.map((each) => each.navigate(each.url).catch(() => {}))); // what is shown there was theirs
})()));
