/**
 * At home on a device: the worker that keeps the page for times without a connection, and a notice when an answer is
 * ready while the page was hidden. Both need a connection that the browser trusts; elsewhere the title has a mark.
 */
import { plain } from "./dom.js";
import { t } from "./i18n.js";
import { preference } from "./preferences.js";
import { workerAddress } from "./workers.js";

const RELEASE = new URL("..", import.meta.url).pathname;

export function canNotify() {
  return isSecureContext && "Notification" in window;
}

/**
 * Keep the page for times without a connection, and announce a new release of it.
 *
 * @param {() => void} renewed called when the files of this page are not served any more
 */
export function keepPage(renewed) {
  addEventListener("unhandledrejection", (event) => {
    // A part that is loaded when it is needed is gone with its release.
    if (!(event.reason instanceof TypeError && /import|module/.test(event.reason.message))) return;
    event.preventDefault();
    renewed();
  });
  if (!isSecureContext || !("serviceWorker" in navigator)) return;
  const { serviceWorker } = navigator;
  serviceWorker.addEventListener("message", ({ data }) => {
    if (data.release && data.release !== RELEASE) renewed();
    if (data.open) location.hash = new URL(data.open).hash;
  });
  // Without it the page works as before.
  serviceWorker.register(workerAddress("page"), { scope: "/" }).catch(() => undefined);
}

/** Look for another release of the page. */
export async function lookForRelease() {
  const worker = await navigator.serviceWorker?.getRegistration().catch(() => undefined);
  await worker?.update().catch(() => undefined);
}

/**
 * Say that an answer is ready, unless the page is looked at.
 *
 * @param {string} title of the conversation
 * @param {string} address of it, which a click on the notification opens
 * @param {string} [text] what is said below the title
 */
export async function notify(title, address, text = t("end.answered")) {
  if (document.visibilityState === "visible") return;
  document.title = `● ${plain(title)}`;
  if (!canNotify() || Notification.permission !== "granted" || preference("notices") !== "on") return;
  const worker = await navigator.serviceWorker?.getRegistration().catch(() => undefined);
  const data = new URL(address, location.href).href;
  const options = { body: text, icon: new URL("../icon-192.png", import.meta.url).pathname, data, tag: data };
  if (worker) await worker.showNotification(title, options);
  else new Notification(title, options).addEventListener("click", () => (location.href = data));
}
