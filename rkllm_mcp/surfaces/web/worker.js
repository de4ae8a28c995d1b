/**
 * Keeps the page itself, so that it opens without a connection; what the board says is never kept. It is registered only
 * where the browser trusts the connection. Each release of the page has an address and its own cache, and all of a
 * release is kept at once: what is opened without a connection is never a mixture of two.
 */

const SHELL = "/static/";
const NAME = `rkllm-mcp ${SHELL}`;
/** @type {string[]} the service writes the names of the files here */
const FILES = [];
// A board that is away answers nothing at all; the page is opened without it then.
const PATIENCE_MS = 5000;

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(NAME)
      .then((cache) => cache.addAll(["/", ...FILES.map((name) => SHELL + name)]))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  const old = (/** @type {string} */ name) => name.startsWith("rkllm-mcp ") && name !== NAME;
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name))))
      .then(() => self.clients.claim())
      .then(() => self.clients.matchAll({ type: "window" }))
      // A page of another release offers to be loaded again.
      .then((pages) => pages.forEach((page) => page.postMessage({ release: SHELL }))),
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
  // Whoever asks and in whichever encoding, the file is the same.
  const found = await cache.match(request, { ignoreVary: true });
  if (found) return found;
  const response = await fetch(request);
  if (response.ok) await cache.put(request, response.clone());
  return response;
}

/** @param {Request} request of the page, which may be of a newer release where there is a connection */
async function fresh(request) {
  const cache = await caches.open(NAME);
  const shell = await cache.match("/", { ignoreVary: true });
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    // What is before a board that is stopped, such as a proxy, answers in its place.
    return response.status >= 500 && shell ? shell : response;
  } catch (error) {
    if (shell) return shell;
    throw error;
  }
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(opened(event.notification.data ?? "/"));
});

/** @param {string} address of the conversation that a notification was about */
async function opened(address) {
  const [page] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!page) return self.clients.openWindow(address);
  page.postMessage({ open: address });
  return page.focus();
}
