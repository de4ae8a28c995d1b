/**
 * At home on a device: the worker that keeps the page for times without a connection, and a notice when an answer is
 * ready while the page was hidden. Both need a connection that the browser trusts; elsewhere the title has a mark.
 */
import { preference } from "./preferences.js";

const WORKER = new URL("../worker.js", import.meta.url).pathname;

export function canNotify() {
  return isSecureContext && "Notification" in window;
}

/** Keep the page for times without a connection. */
export function keepPage() {
  if (!isSecureContext || !("serviceWorker" in navigator)) return;
  // @ts-expect-error: not every browser knows trusted types
  const policy = window.trustedTypes?.createPolicy("page-worker", { createScriptURL: () => WORKER });
  // Without it the page works as before.
  navigator.serviceWorker.register(policy?.createScriptURL("") ?? WORKER, { scope: "/" }).catch(() => undefined);
}

/**
 * @param {string} title
 * @param {string} body
 */
export async function notify(title, body) {
  if (document.visibilityState === "visible") return;
  document.title = `● ${title}`;
  if (!canNotify() || Notification.permission !== "granted" || preference("notices") !== "on") return;
  const worker = await navigator.serviceWorker?.getRegistration().catch(() => undefined);
  const options = { body, icon: new URL("../icon-192.png", import.meta.url).pathname, data: location.href, tag: title };
  if (worker) await worker.showNotification(title, options);
  else new Notification(title, options);
}
