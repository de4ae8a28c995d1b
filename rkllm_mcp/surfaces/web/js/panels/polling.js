/** Work that repeats while the page is shown, such as a measurement of the board or the progress of a download. */

/**
 * Repeat work only while the page is shown.
 *
 * @param {() => Promise<void>} work
 * @param {number} pause_ms between the end of one and the beginning of the next
 * @returns {{start: () => void, stop: () => void}}
 */
export function whileVisible(work, pause_ms) {
  let isWanted = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isBusy = false;
  const round = async () => {
    if (!isWanted || isBusy || document.visibilityState !== "visible") return;
    isBusy = true;
    await work();
    isBusy = false;
    clearTimeout(timer);
    timer = setTimeout(round, pause_ms);
  };
  document.addEventListener("visibilitychange", round);
  return {
    start: () => {
      isWanted = true;
      void round();
    },
    stop: () => {
      isWanted = false;
      clearTimeout(timer);
    },
  };
}
