/** A long press of a finger. */

const LONG_MS = 500;
const STILL_PX = 10;

/**
 * Call this when a finger has rested on a part of an element; a finger that moves scrolls.
 *
 * @param {HTMLElement} element
 * @param {(pressed: Element) => void} act
 */
export function onLongPress(element, act) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let start = { x: 0, y: 0 };
  element.addEventListener("pointerdown", ({ pointerType, target, clientX, clientY }) => {
    clearTimeout(timer);
    start = { x: clientX, y: clientY };
    if (pointerType === "touch" && target instanceof Element) timer = setTimeout(() => act(target), LONG_MS);
  });
  element.addEventListener("pointermove", ({ clientX, clientY }) => {
    if (Math.hypot(clientX - start.x, clientY - start.y) > STILL_PX) clearTimeout(timer);
  });
  for (const over of ["pointerup", "pointercancel"]) element.addEventListener(over, () => clearTimeout(timer));
}
