/**
 * Keeps the page itself, so that it opens without a connection; what the board says is never kept. It is registered only
 * where the browser trusts the connection.
 */

const SHELL = "/static/";
const NAME = `rkllm-mcp ${SHELL}`;

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(NAME)
      .then((cache) => cache.add("/"))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  const old = (/** @type {string} */ name) => name.startsWith("rkllm-mcp ") && name !== NAME;
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { pathname } = new URL(event.request.url);
  if (event.request.method !== "GET") return;
  if (pathname.startsWith(SHELL)) event.respondWith(kept(event.request));
  else if (pathname === "/") event.respondWith(fresh(event.request));
});

/** @param {Request} request of a file that never changes */
async function kept(request) {
  const cache = await caches.open(NAME);
  const found = await cache.match(request);
  if (found) return found;
  const response = await fetch(request);
  if (response.ok) await cache.put(request, response.clone());
  return response;
}

/** @param {Request} request of the page, which is newer where there is a connection */
async function fresh(request) {
  const cache = await caches.open(NAME);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put("/", response.clone());
    return response;
  } catch (error) {
    const found = await cache.match("/");
    if (found) return found;
    throw error;
  }
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(
    self.clients.matchAll({ type: "window" }).then((windows) => {
      const [open] = windows;
      return open ? open.focus() : self.clients.openWindow(event.notification.data ?? "/");
    }),
  );
});
