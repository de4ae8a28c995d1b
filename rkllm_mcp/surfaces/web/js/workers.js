/** The page's two workers: the policy for trusted types has no other address. */

/** @type {Record<string, string>} */
const ADDRESSES = {
  page: new URL("../worker.js", import.meta.url).pathname,
  libraries: new URL("markdown/libraries.js", import.meta.url).pathname,
};
// @ts-expect-error: not every browser knows trusted types
const policy = globalThis.trustedTypes?.createPolicy("page-worker", {
  createScriptURL: (/** @type {string} */ name) => ADDRESSES[name],
});

/**
 * @param {"page" | "libraries"} name
 * @returns {string} the address; an object that holds it where the browser wants one
 */
export function workerAddress(name) {
  return policy?.createScriptURL(name) ?? ADDRESSES[name];
}
