// Shows what the daemon pushes to an installed page, and opens the page there. It has no part in how pages are loaded,
// keeps nothing and fetches nothing. Served by guard.py at one address, and only where Harken holds the certificate of
// the public address: see "Why there is no page for when Harken is down" in docs/explanation/attacks.md.
"use strict";

const HOME = "/needs";

// What is pushed comes encrypted from the daemon. Still it leads nowhere else.
function placeOf(path) {
  const place = new URL(typeof path === "string" ? path : HOME, self.location.origin);
  return place.origin === self.location.origin ? place : new URL(HOME, self.location.origin);
}

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let said = {};
  try { said = event.data?.json() ?? {}; } catch { /* every push has to be shown, whatever it says */ }
  event.waitUntil(self.registration.showNotification(said.title || "Harken", {
    body: said.text || "Something waits for you.",
    tag: said.tag || "harken",
    data: { path: said.path },
  }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil((async () => {
    const place = placeOf(event.notification.data?.path);
    const [open] = await self.clients.matchAll({ type: "window" });
    const shown = await open?.navigate(place.href).catch(() => null);
    await (shown ? shown.focus() : self.clients.openWindow(place.href));
  })());
});
